"""The first page: what there is to read and to practise, what was measured last, and what to do next."""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.urls import reverse
from sqlalchemy.exc import SQLAlchemyError

from calculators.lab import store
from calculators.lab.store import LedgerError, Run
from calculators.runs import ledger, title_of
from quizzes import bank
from quizzes.bank import PackProgress
from tutor.lessons import catalogue
from tutor.lessons.progress import Progress, progress_of

Reader = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True, kw_only=True)
class Step:
    """The one thing to do next: why, and the link that does it."""

    reason: str
    action: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Home:
    """Everything on the first page for one reader."""

    reading: Progress
    packs: tuple[PackProgress, ...]
    last_run: Run | None

    @property
    def last_run_title(self) -> str:
        return title_of(self.last_run.spec) if self.last_run else ""

    @property
    def step(self) -> Step:
        """Read first, then practise, then measure; once all is met, measure again with other sizes."""
        started = next((p for p in self.packs if 0 < p.seen < p.questions), None)
        if started:
            return Step(
                reason=f"You have met {started.seen} of {started.questions} questions of “{started.pack.title}”.",
                action="Go on practising",
                address=reverse("quizzes:pack", args=[started.pack.address]),
            )
        if self.last_run and not self.last_run.is_final:
            return Step(
                reason=f"Your run is {self.last_run.state}: {self.last_run_title}.",
                action="Watch it",
                address=reverse("calculators:run", args=[self.last_run.id]),
            )
        practised = any(p.seen for p in self.packs)
        if (lesson := self.reading.next) and self.reading.read:
            return Step(
                reason=f"You have read {self.reading.read} of {len(self.reading.lessons)} lessons.",
                action=f"Go on with {lesson.title}",
                address=reverse("lessons:lesson", args=[lesson.slug]),
            )
        if lesson and not practised and not self.last_run:
            return Step(
                reason=f"New here? {lesson.title} takes {lesson.minutes} minutes and asks you as it goes.",
                action="Read the first lesson",
                address=reverse("lessons:lesson", args=[lesson.slug]),
            )
        if not self.last_run:
            return Step(
                reason="You have answered on paper. Let this machine answer, too.",
                action="Predict a run and measure it",
                address=reverse("calculators:new-run"),
            )
        return Step(
            reason="Change one size and say what will happen before you look.",
            action="Calculate another split",
            address=reverse("calculators:traffic"),
        )


def home_of(reader: Reader) -> Home:
    """The first page as `reader` should see it."""
    return Home(
        reading=progress_of(reader, catalogue.lessons()),
        packs=tuple(bank.packs_with_progress(reader)),
        last_run=_last_run(reader),
    )


def _last_run(reader: Reader) -> Run | None:
    """The reader's newest run; None also while the ledger cannot be reached, which its own pages say."""
    if not reader.is_authenticated:
        return None
    try:
        with ledger().reading() as session:
            runs = store.latest_runs(session, limit=1, submitted_by=reader.get_username())
    except (LedgerError, SQLAlchemyError):
        return None
    return runs[0] if runs else None
