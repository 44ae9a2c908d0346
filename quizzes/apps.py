"""The Django app `quizzes`: question packs, the bank, and practice."""

from django.apps import AppConfig


class QuizzesConfig(AppConfig):
    name = "quizzes"
