"""The questions that come with the site, held against the runs that come with it: calculated and measured."""

import pytest

from calculators.lab.shipped import take_over_shipped_runs
from calculators.runs import ledger
from quizzes import verifying
from quizzes.bank import load_builtin_packs
from quizzes.models import Question

pytestmark = pytest.mark.django_db

LEAST_MEASURED = 24


def test_every_measured_question_of_the_bank_agrees_with_a_run_that_comes_with_the_site(settings, tmp_path):
    settings.LEDGER_URL = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    verifying.forget()
    load_builtin_packs()
    with ledger().begin() as session:
        take_over_shipped_runs(session)

    verifying.catch_up()

    bound = [
        question
        for question in Question.objects.filter(status="live").select_related(
            "revision__question", "verification", "pack"
        )
        if (verify := question.revision.parsed().verify) is not None and verify.is_measured
    ]
    unmeasured = [question.reference for question in bound if question.verification is None]
    off = {
        q.reference: q.verification.difference for q in bound if q.verification and not q.verification.agrees
    }
    assert unmeasured == []
    assert off == {}
    templates = [q for q in bound if q.type == "numeric" and q.revision.parsed().params]
    assert len(templates) >= LEAST_MEASURED
