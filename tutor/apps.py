"""The Django app `tutor`: home, accounts, and the commands that start the site."""

from django.apps import AppConfig


class TutorConfig(AppConfig):
    name = "tutor"
