"""The list of runs: what is asked for, which runs fit, and who is there to take the waiting ones."""

from dataclasses import dataclass
from datetime import datetime

from django import forms

from calculators.fields import AddressForm, Choice, WholeNumber
from calculators.lab import store
from calculators.lab.choices import Job, Phase
from calculators.lab.store import Run, RunState, Worker
from calculators.runs.opening import looking
from calculators.runs.words import FAMILIES, title_of
from calculators.units import counted

PAGE = 50
_ANY = ("", "any")


class ListForm(AddressForm):
    """Which runs to list; its state is an address."""

    DEFAULTS = dict.fromkeys(
        ("family", "job", "phase", "state", "person", "experiment", "words", "before"), ""
    )

    family = Choice(
        label="Family",
        required=False,
        choices=[_ANY, *((key, f"{key.upper()} {name}") for key, name in FAMILIES.items())],
    )
    job = Choice(label="Job", required=False, choices=[_ANY, *((str(job), str(job)) for job in Job)])
    phase = Choice(
        label="Phase", required=False, choices=[_ANY, *((str(phase), str(phase)) for phase in Phase)]
    )
    state = Choice(
        label="State", required=False, choices=[_ANY, *((str(state), str(state)) for state in RunState)]
    )
    person = forms.CharField(label="By", required=False, max_length=150)
    experiment = forms.CharField(label="Experiment", required=False, max_length=80)
    words = forms.CharField(label="Words", required=False, max_length=100)
    before = WholeNumber(
        label="Before run", low=1, high=2**31 - 1, instead="the newest", widget=forms.HiddenInput
    )

    @property
    def shown_fields(self) -> list[forms.BoundField]:
        """Those that a person fills in."""
        return list(self.visible_fields())

    @property
    def is_filtered(self) -> bool:
        """Whether it asks for anything but all of them."""
        return any(self.cleaned_data.get(name) for name in self.fields if name != "before")


@dataclass(frozen=True, kw_only=True)
class RunList:
    """The runs that fit, the newest first, and the state of the queue."""

    runs: tuple[Run, ...]
    workers: tuple[Worker, ...]
    waiting: int
    at_work: int
    older: int | None
    anything: bool

    @property
    def waits_for_a_worker(self) -> bool:
        return not self.workers and self.waiting > 0

    @property
    def queue_sentence(self) -> str:
        """Who works, and what waits."""
        if not self.workers:
            there = "No worker is there"
        else:
            machines = dict.fromkeys(worker.machine for worker in self.workers)
            there = f"{counted(len(self.workers), 'worker')} on {'; '.join(machines)}"
        return f"{there}. {counted(self.at_work, 'run')} at work, {self.waiting} waiting."


def run_list(form: ListForm, *, now: datetime) -> RunList:
    """The runs that the form asks for; all where it asks for what cannot be."""
    wanted = form.cleaned_data if form.is_valid() else {}
    with looking(now=now) as session:
        newest = store.latest_runs(session, limit=MOST)
        workers = tuple(store.workers_alive(session, now=now))
    fitting = [run for run in newest if _fits(run, wanted)]
    shown = tuple(fitting[:PAGE])
    return RunList(
        runs=shown,
        workers=workers,
        waiting=sum(run.state is RunState.QUEUED for run in newest),
        at_work=sum(run.state is RunState.RUNNING for run in newest),
        older=shown[-1].id if len(fitting) > PAGE else None,
        anything=bool(newest),
    )


MOST = 2_000
"""So many runs are looked through."""


def _fits(run: Run, wanted: dict[str, object]) -> bool:
    spec = run.spec
    before = wanted.get("before")
    if isinstance(before, int) and run.id >= before:
        return False
    plain = {
        "job": str(spec.job),
        "state": str(run.state),
        "person": run.submitted_by,
        "experiment": run.experiment,
    }
    if any(wanted.get(name) and wanted[name] != value for name, value in plain.items()):
        return False
    if wanted.get("phase") and (not spec.has_model or str(spec.phase) != wanted["phase"]):
        return False
    if wanted.get("family") and wanted["family"] not in spec.families:
        return False
    said = f"{title_of(spec)} {spec.note} {run.experiment} {run.variant} {run.machine} {run.error}".lower()
    return all(word in said for word in str(wanted.get("words", "")).lower().split())
