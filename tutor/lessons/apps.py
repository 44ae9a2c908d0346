"""The Django app `lessons`: written lessons, read from `content/`."""

from django.apps import AppConfig


class LessonsConfig(AppConfig):
    name = "tutor.lessons"
    label = "lessons"
