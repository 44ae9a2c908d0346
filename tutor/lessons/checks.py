"""`manage.py check` reads every lesson and names every defect."""

from collections.abc import Iterable

from django.core.checks import CheckMessage, Error, register


@register("lessons")
def check_lessons(app_configs: object, **kwargs: object) -> Iterable[CheckMessage]:
    """One error for each defect, with its file and line."""
    # Imported late: half of the site hangs on it, and most commands do without.
    from tutor.lessons.catalogue import lessons
    from tutor.lessons.defects import LessonError

    try:
        lessons()
    except LessonError as error:
        return [
            Error(str(defect), id="lessons.E001", hint="tutor/lessons/markup.py says what a lesson may hold.")
            for defect in error.defects
        ]
    return []
