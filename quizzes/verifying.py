"""One oracle, three uses: the calculator's key, held against what the lab measured of the same quantity.

`catch_up` looks at runs that have ended since it last looked. The newest run that a question can be held against
decides: where it is off by more than the question tolerates, the question is *disputed*, leaves exams, and its author
is told; a later run that agrees clears it.
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from calculators.lab import store
from calculators.lab.finding import runs_matching
from calculators.lab.measurements import Quantity
from calculators.lab.records import Run, RunState
from calculators.lab.spec import experiment, experiment_names
from calculators.lab.store import LedgerError
from calculators.runs import ledger
from quizzes.measured import NotMeasured, is_like, read
from quizzes.models import Question, Revision, Verification
from quizzes.questions import Verify

LOOK_AGAIN_SECONDS = 2.0
_RUNS_LOOKED_AT = 50
_QUANTITIES = (Quantity.CALLS, Quantity.HANDED, Quantity.WIRE, Quantity.MEMORY)
log = logging.getLogger(__name__)


class _Seen:
    """When this process last looked, and the newest run and revision that it saw then."""

    lock = threading.Lock()
    at = float("-inf")
    newest: object = None


def catch_up() -> None:
    """Hold questions against runs that have ended since, and changed questions against the newest run.

    Cheap where nothing is new, and silent without a ledger.
    """
    with _Seen.lock:
        if time.monotonic() - _Seen.at < LOOK_AGAIN_SECONDS:
            return
        _Seen.at = time.monotonic()
        try:
            with ledger().reading() as session:
                latest = next(iter(runs_matching(session, state=RunState.DONE, limit=1)), None)
                revision = Revision.objects.aggregate(newest=Max("pk"))["newest"]
                newest = (latest and (latest.id, latest.ended_at), revision)
                if newest == _Seen.newest:
                    return
                hold_against_runs(session)
                _Seen.newest = newest
        except (LedgerError, SQLAlchemyError) as error:
            log.warning("Questions are not held against runs: %s", error)


def forget() -> None:
    """Look again at the next occasion, whatever was seen."""
    _Seen.at, _Seen.newest = float("-inf"), None


def hold_against_runs(session: Session) -> list[Question]:
    """Store what the newest fitting run says of every measured question; the questions that changed sides."""
    bound: dict[str, list[tuple[Question, Verify]]] = {}
    measured = Question.objects.filter(
        status=Question.Status.LIVE, revision__content__verify__measure__isnull=False
    )
    for question in measured.select_related("revision__question", "verification", "pack"):
        verify = question.revision.parsed().verify if question.revision else None
        if verify is not None and verify.is_measured and verify.lab in experiment_names():
            bound.setdefault(verify.lab, []).append((question, verify))
    changed: list[Question] = []
    for lab, questions in bound.items():
        shipped = experiment(lab)
        runs = runs_matching(session, job=str(shipped.job), state=RunState.DONE, limit=_RUNS_LOOKED_AT)
        fitting = [run for run in runs if run.succeeded and is_like(run.spec, shipped)]
        if fitting:
            newest = max(
                fitting, key=lambda run: (run.ended_at is not None and run.ended_at.timestamp(), run.id)
            )
            changed += _judge(session, newest, questions)
    return changed


def _judge(session: Session, run: Run, questions: Sequence[tuple[Question, Verify]]) -> Iterator[Question]:
    """What one run says of the questions that it is bound to."""
    comparisons = store.comparisons_of(session, run.id, quantities=_QUANTITIES)
    for question, verify in questions:
        known = question.verification
        if known and (known.revision_id, known.run_id) == (question.revision_id, run.id):
            continue
        try:
            reading = read(verify, run.spec, comparisons)
        except NotMeasured as error:
            log.warning("%s: run %d says nothing of it: %s", question.reference, run.id, error)
            continue
        agrees = reading.agrees(verify.rtol)
        with transaction.atomic():
            verification, _ = Verification.objects.update_or_create(
                revision=question.revision,
                run_id=run.id,
                defaults={
                    "device": f"{run.device}, {run.backend}, {run.world_size} ranks"[:200],
                    "measured_at": run.ended_at or timezone.now(),
                    "calculated": reading.calculated,
                    "measured": reading.measured,
                    "named": reading.named,
                    "unit": reading.unit,
                    "agrees": agrees,
                },
            )
            Question.objects.filter(pk=question.pk).update(verification=verification)
        if not agrees:
            log.warning(
                "%s is disputed: run %d measured %g %s, the calculator says %g.",
                *(question.reference, run.id, reading.measured, reading.unit, reading.calculated),
            )
        if (known is None and not agrees) or (known is not None and known.agrees != agrees):
            yield question
