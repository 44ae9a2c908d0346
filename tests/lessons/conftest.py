"""The whole bank in the database, once for all the tests of a module: lessons ask questions from every pack."""

import pytest

from quizzes.bank import load_builtin_packs
from quizzes.models import Misconception, Pack, Question, Revision, Serving


@pytest.fixture(scope="module")
def bank(django_db_setup, django_db_blocker):
    """The packs that come with the site, imported; tests need `django_db` themselves."""
    with django_db_blocker.unblock():
        load_builtin_packs()
        yield
        Serving.objects.all().delete()
        Question.objects.update(revision=None, verification=None)
        for kind in (Revision, Question, Misconception, Pack):
            kind.objects.all().delete()
