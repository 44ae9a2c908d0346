"""`manage.py check` reads every lesson and names every defect."""

from collections.abc import Iterable

from django.core.checks import CheckMessage, Error, register


@register("lessons")
def check_lessons(app_configs: object, **kwargs: object) -> Iterable[CheckMessage]:
    """One error for each defect, with its file and line."""
    # Imported late: half of the site hangs on it, and most commands do without.
    from tutor.lessons.catalogue import defects
    from tutor.lessons.defects import LessonError

    try:
        found = defects()
    except LessonError as error:  # the glossary's
        found = error.defects
    hint = "tutor/lessons/markup.py says what a lesson may hold."
    return [Error(str(defect), id="lessons.E001", hint=hint) for defect in found]
