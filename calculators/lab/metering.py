"""All meters of one rank, in the order in which a run uses them: memory while it warms up, counters around the
measured steps, and a timeline of some steps after them, so that no meter is in another's way.
"""

import time
from collections import Counter
from collections.abc import Callable

import torch
import torch.distributed as dist

from calculators.lab import groups
from calculators.lab.jobs.base import RankJob
from calculators.lab.measurements import Doing, Event, Log, Measurement, Quantity
from calculators.lab.meters import CannotSee, memory
from calculators.lab.meters.machine import MachineMeters
from calculators.lab.meters.sockets import why_wire_is_unseen
from calculators.lab.meters.timeline import Recorder
from calculators.lab.meters.wire import WireMeter
from calculators.lab.plan import Plan

IDLE_SECONDS = 0.05
"""How long the idle control keeps its hands off the wire."""
TIMELINE_SECONDS = 0.25
"""A timeline follows whole steps until about so much is told."""
_FEWEST_TIMELINE_STEPS, _MOST_TIMELINE_STEPS = 3, 20


class Metering:
    """The meters of `rank`; what they see goes through `say`. Make it before the job's group is joined."""

    def __init__(
        self,
        plan: Plan,
        *,
        rank: int,
        store: dist.Store,
        device: torch.device,
        say: Callable[[Event], None],
    ) -> None:
        self.plan, self.rank, self.device, self._say = plan, rank, device, say
        self.wire: WireMeter | None = None
        unseen = why_wire_is_unseen(plan.placement.backend)
        if unseen is None:
            limit = plan.spec.time_limit_seconds
            self.wire = WireMeter(store, rank=rank, size=plan.world_size, timeout_seconds=limit)
        else:
            self._once(f"Wire bytes are not measured: {unseen}.")
        self._machine = MachineMeters(plan, rank=rank, say=lambda text: say(Log(rank=rank, text=text)))

    def watch_memory(self, job: RankJob) -> None:
        """Take one training step and report what it held; the step is a warm-up step like the others."""
        saved = memory.SavedForBackward(job.modules)
        try:
            memory.forget_peak(self.device)
            with saved.watching():
                job.step()
            peak: int | None = memory.peak(self.device)
        except CannotSee as reason:
            self._once(f"The peak of memory is not measured: {reason}.")
            peak = None
        held = {
            memory.WEIGHTS: memory.weights(job.modules),
            memory.GRADIENTS: memory.gradients(job.modules),
            memory.OPTIMIZER: memory.optimizer_state(job.optimizer),
            memory.SAVED: saved.bytes,
            memory.PEAK: peak,
        }
        for part, value in held.items():
            if value is not None:
                self.report(Quantity.MEMORY, value, detail=part)

    def start(self) -> None:
        """Show that nothing else talks, then remember where every counter stands."""
        if self.wire is not None:
            self.wire.attach()
            before = self.wire.read()
            time.sleep(IDLE_SECONDS)
            self._sent = self.wire.read()
            self.report(Quantity.IDLE, sum(self._sent) - sum(before))
        self._machine.start()
        self._calls, self._handed = _counted()

    def finish(self) -> None:
        """Report how far every counter has come since `start`."""
        calls, handed = _counted()
        for quantity, now, then in (
            (Quantity.CALLS, calls, self._calls),
            (Quantity.HANDED, handed, self._handed),
        ):
            now.subtract(then)
            self.report(quantity, now.total())
            planned = {call.name: 0 for call in self.plan.calls if call.is_made_by(self.rank)}
            for name, value in (planned | now).items():
                self.report(quantity, value, detail=name)
        if self.wire is not None:
            sent = [now - then for now, then in zip(self._read_at_last(self.wire), self._sent, strict=True)]
            self.report(Quantity.WIRE, sum(sent))
            for peer, value in enumerate(sent):
                if peer != self.rank:
                    self.report(Quantity.PAIR, value, peer=peer)
        for quantity, detail, seen in self._machine.finish():
            self.report(quantity, seen, detail=detail)

    def watch_time(self, job: RankJob, *, step_seconds: float, finish: Callable[[], None]) -> None:
        """Take some more steps and tell what the rank did in them; every rank takes as many."""
        wanted = int(TIMELINE_SECONDS / max(step_seconds, 1e-6))
        steps = min(_MOST_TIMELINE_STEPS, max(_FEWEST_TIMELINE_STEPS, wanted))
        if not self.plan.loses_a_rank:
            steps = self._agree(steps)
        recorder = Recorder()
        groups.watch(recorder)
        try:
            for _ in range(steps):
                job.step()
                finish()
            if self.wire is not None and not self.plan.loses_a_rank:
                with recorder.wait(Doing.IDLE, "until every rank is through"):
                    self.wire.barrier()  # else whoever is through first would seem never to have waited
        finally:
            groups.watch(None)
        recorder.stop()
        self._say(recorder.timeline(self.rank))
        for doing, seconds in recorder.seconds().items():
            self.report(Quantity.SECONDS, seconds, detail=doing, steps=steps)

    def _agree(self, steps: int) -> int:
        """The fewest of what every rank would take; over the job's own group where the meters have none."""
        if self.wire is not None:
            return self.wire.agree(steps)
        fewest = torch.tensor([steps], device=self.device)
        dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
        return int(fewest)

    def _read_at_last(self, wire: WireMeter) -> list[int]:
        """What was sent to each peer; a lost rank takes part in no reading, so the others read their own sockets."""
        if not self.plan.loses_a_rank:
            return wire.read()
        wire.wait_for_loss_of(self.plan.spec.lost_rank)
        return wire.read_alone()

    def leave(self) -> None:
        """Part from the others together, so that nobody sees a closed connection as a failure."""
        if self.wire is not None:
            if not self.plan.loses_a_rank:
                self.wire.barrier()
            self.wire.close()

    def report(
        self,
        quantity: Quantity,
        value: float,
        *,
        detail: str = "",
        peer: int | None = None,
        steps: int | None = None,
    ) -> None:
        """Say what a meter saw, over all measured steps or over `steps`."""
        steps = self.plan.spec.steps if steps is None else steps
        self._say(
            Measurement(
                quantity=quantity, rank=self.rank, peer=peer, detail=detail, value=float(value), steps=steps
            )
        )

    def _once(self, text: str) -> None:
        if self.rank == 0:
            self._say(Log(rank=0, text=text))


def _counted() -> tuple[Counter[str], Counter[str]]:
    """Calls and handed bytes of this process so far, by the group's axis and the kind of call."""
    calls: Counter[str] = Counter()
    handed: Counter[str] = Counter()
    for group in groups.made():
        for (kind, size), times in group.log.items():
            calls[f"{group.axis} {kind}"] += times
            handed[f"{group.axis} {kind}"] += size * times
    return calls, handed
