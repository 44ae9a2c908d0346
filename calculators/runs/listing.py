"""The list of runs: what is asked for, which runs fit, and who is there to take the waiting ones."""

from dataclasses import dataclass
from datetime import datetime

from django import forms

from calculators.fields import AddressForm, Choice, WholeNumber
from calculators.lab import store
from calculators.lab.choices import Job, Phase
from calculators.lab.store import Run, RunState, Worker
from calculators.runs.opening import looking
from calculators.runs.words import FAMILIES
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
        fitting = store.runs_matching(
            session,
            family=wanted.get("family") or None,
            job=wanted.get("job") or None,
            phase=wanted.get("phase") or None,
            state=RunState(wanted["state"]) if wanted.get("state") else None,
            person=wanted.get("person") or None,
            experiment=wanted.get("experiment") or None,
            text=wanted.get("words") or None,
            before_id=wanted.get("before") or None,
            limit=PAGE + 1,
        )
        by_state = store.runs_by_state(session)
        workers = tuple(store.workers_alive(session, now=now))
    shown = tuple(fitting[:PAGE])
    return RunList(
        runs=shown,
        workers=workers,
        waiting=by_state[RunState.QUEUED],
        at_work=by_state[RunState.RUNNING],
        older=shown[-1].id if len(fitting) > PAGE else None,
        anything=any(by_state.values()),
    )
