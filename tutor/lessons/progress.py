"""How far somebody has read: which lessons, how many minutes are left, and which one comes next."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from tutor.lessons.loader import Lesson
from tutor.lessons.models import Reading

Reader = AbstractBaseUser | AnonymousUser
COMING = 4
"""Lessons that a page names when it does not list them all."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One reader's way through the lessons; a visitor without an account has read none."""

    lessons: Mapping[str, Lesson]
    read_at: Mapping[str, datetime]

    @property
    def read(self) -> int:
        """How many of today's lessons were read."""
        return sum(slug in self.read_at for slug in self.lessons)

    @property
    def next(self) -> Lesson | None:
        """The first lesson that was not read, in reading order; None at the end."""
        return next((lesson for slug, lesson in self.lessons.items() if slug not in self.read_at), None)

    @property
    def coming(self) -> list[Lesson]:
        """The next few that were not read, in reading order."""
        return [lesson for slug, lesson in self.lessons.items() if slug not in self.read_at][:COMING]

    @property
    def minutes_left(self) -> int:
        """Minutes of the lessons that were not read."""
        return sum(lesson.minutes for slug, lesson in self.lessons.items() if slug not in self.read_at)


def progress_of(reader: Reader, lessons: Mapping[str, Lesson]) -> Progress:
    """What `reader` has read of `lessons`."""
    if not reader.is_authenticated:
        return Progress(lessons=lessons, read_at={})
    rows = Reading.objects.filter(learner_id=reader.pk).values_list("lesson", "read_at")
    return Progress(lessons=lessons, read_at=dict(rows))


def mark(reader: AbstractBaseUser, slug: str, *, read: bool) -> None:
    """Note that `reader` has read a lesson, or wants to read it again."""
    if read:
        Reading.objects.get_or_create(learner_id=reader.pk, lesson=slug)
    else:
        Reading.objects.filter(learner_id=reader.pk, lesson=slug).delete()
