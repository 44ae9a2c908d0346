"""The WSGI application that a web server loads."""

import contextlib
import gc
import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tutor.settings")
application = get_wsgi_application()


def _warm_up() -> None:
    """Imports every view, reads the lessons and answers every calculator once, while nobody waits.

    A view that cannot be imported stops the start with one traceback, not each page with its own. What is loaded by
    then stays, so the collector need not look at it again during each request.
    """
    from calculators.pages import CALCULATORS
    from calculators.workbench import warm_up
    from tutor.lessons.catalogue import lessons
    from tutor.lessons.defects import LessonError

    get_resolver().url_patterns  # noqa: B018
    with contextlib.suppress(LessonError):  # its own page says what is wrong with it
        lessons()
    warm_up(CALCULATORS)
    gc.collect()
    gc.freeze()


_warm_up()
