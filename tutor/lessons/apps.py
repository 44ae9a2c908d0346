"""The Django app `lessons`: written lessons, read from `content/`."""

from django.apps import AppConfig


class LessonsConfig(AppConfig):
    name = "tutor.lessons"
    label = "lessons"

    def ready(self) -> None:
        from tutor.lessons import checks  # noqa: F401 - registers the check of all lessons
