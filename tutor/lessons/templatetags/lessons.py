"""`{% load lessons %}`: whether there is a lesson of a name, for pages that would link to it."""

from django import template

from tutor.lessons import catalogue
from tutor.lessons.loader import Lesson, LessonError

register = template.Library()


@register.filter
def lesson_of(slug: str) -> Lesson | None:
    """The lesson at this address; None where it is not written yet, or no lesson can be read."""
    try:
        return catalogue.lessons().get(slug)
    except LessonError:
        return None
