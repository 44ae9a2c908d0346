"""Replicas with their own shares of a batch: what they must say to each other to learn as one, and what to serve."""

import socket
import threading

import pytest
import torch
import torch.distributed as dist

from calculators.lab.calls import Call
from calculators.lab.jobs.transformer import whole_model
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Log, Quantity, Timeline, Verified
from calculators.lab.meters import wire
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec, SpecError
from calculators.lab.splits import calls_of, data
from calculators.predict.collectives import sent_bytes
from calculators.predict.memory.states import PLAIN_ADAM, model_states
from calculators.predict.traffic.data import data_parallel
from tests.lab import failing_ranks
from tests.lab.conftest import ON_CPU
from tests.lab.replicas import UNEVEN, WIDE, Runs, assert_nothing_is_unexplained, moved, of, once, series

__all__ = ["once"]

pytestmark = pytest.mark.distributed

DISTANCE = "distance from the replicas' mean, as a share of it"


def data_spec(**given: object) -> Spec:
    return Spec.parse({"job": "data", "phase": "training", **given})


def ring_bytes(calls: tuple[Call, ...], ranks: int) -> float:
    """What a rank sends in these calls by the textbook's ring."""
    return float(
        sum(call.times * sent_bytes(call.op, call.payload_bytes, ranks, algorithm="ring") for call in calls)
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_summed_gradients_are_the_whole_batchs_and_every_byte_is_explained(once: Runs, ranks: int) -> None:
    outcome = once(job="data", phase="training", ranks=ranks, **WIDE)

    assert min(call.payload_bytes for call in outcome.plan.calls) >= 2**20
    assert_nothing_is_unexplained(outcome)


def test_buckets_that_no_ring_divides_leave_nothing_unexplained(once: Runs) -> None:
    outcome = once(job="data", phase="training", ranks=3, **UNEVEN | {"batch": 3})

    assert_nothing_is_unexplained(outcome)
    assert any(c.prediction.backend_excess for c in of(outcome, Quantity.WIRE))


def test_replicas_that_sum_stay_alike_to_the_bit_and_learn(once: Runs) -> None:
    outcome = once(job="data", phase="training", ranks=4, **WIDE)

    assert series(outcome, DISTANCE) == dict.fromkeys(range(4), (0.0,) * 10)
    for losses in series(outcome, "loss").values():
        assert len(losses) == 10
        assert losses[-1] < losses[0]


def test_replicas_that_keep_their_gradients_send_nothing_and_drift_apart(once: Runs) -> None:
    outcome = once(job="data", phase="training", ranks=4, gradients="kept", **WIDE)

    assert_nothing_is_unexplained(outcome)
    assert moved(outcome) == 0
    assert of(outcome, Quantity.CALLS)[0].measured == 0
    distances = series(outcome, DISTANCE)
    assert len(distances) == 4
    for values in distances.values():
        assert values == tuple(sorted(values))
        assert 0 < values[0] < values[-1] / 2


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_replicas_that_serve_send_nothing(once: Runs, phase: str, ranks: int) -> None:
    outcome = once(job="data", phase=phase, ranks=ranks, **UNEVEN)

    assert_nothing_is_unexplained(outcome)
    assert moved(outcome) == 0
    each = 4 // ranks * (4 if phase == "prefill" else 1)
    assert series(outcome, "tokens served")[0] == tuple(each * step for step in range(1, 11))


@pytest.mark.parametrize("lost", [0, 2])
def test_replicas_serve_on_when_one_is_killed(once: Runs, lost: int) -> None:
    outcome = once(job="data", ranks=3, lost_rank=lost, batch=6, **UNEVEN)

    survivors = [rank for rank in range(3) if rank != lost]
    said = [log.text for log in outcome.all(Log)]
    assert f"rank {lost} was killed at step 5 of 10; the others serve on" in said
    assert sum(text.startswith("afterwards sharded equals unsharded") for text in said) == 2
    assert sorted(verdict.rank for verdict in outcome.all(Verified)) == [0, 1, 2]
    assert outcome.is_verified
    assert [c.rank for c in of(outcome, Quantity.WIRE)] == survivors
    assert moved(outcome) == 0
    assert {rank: values[-1] for rank, values in series(outcome, "tokens served").items()} == dict.fromkeys(
        survivors, 20
    )


def test_a_rank_that_dies_before_its_time_is_a_failure_all_the_same() -> None:
    plan = make_plan(Spec.parse({"job": "data", "ranks": 2, "lost_rank": 1}), ON_CPU)

    with LocalLauncher(work=failing_ranks.one_is_killed) as launcher:
        events = [event for event in launcher.run(plan) if event is not None]

    assert events[-1].reason.startswith("The process was killed by SIGKILL")


def test_the_timeline_shows_what_ddp_waits_for(once: Runs) -> None:
    outcome = once(job="data", phase="training", ranks=2, **WIDE)

    for timeline in outcome.all(Timeline):
        waits = [span.what for span in timeline.spans if span.doing == "waiting"]
        assert "dp all-reduce" in waits


def test_one_replica_alone_runs_and_sends_nothing(once: Runs) -> None:
    outcome = once(job="data", phase="training", ranks=1, **UNEVEN)

    assert_nothing_is_unexplained(outcome)
    assert moved(outcome) == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_buckets_are_those_that_torch_itself_would_fill(dtype: str) -> None:
    spec = data_spec(
        layers=5, hidden_size=768, ffn_width=3_072, vocab_size=5_000, dtype=dtype, batch=2, tokens=8
    )
    with torch.device("meta"):
        weights = list(reversed(list(whole_model(spec, device=torch.device("meta")).parameters())))

    indices, _ = dist._compute_bucket_assignment_by_size(
        weights, [data.FIRST_BUCKET_BYTES, data.BUCKET_BYTES]
    )

    expected = [sum(weights[index].nbytes for index in bucket) for bucket in indices]
    assert len(expected) > 2
    assert sorted(data.buckets(spec)) == sorted(expected)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_step_moves_what_predict_says_of_data_parallelism(ranks: int) -> None:
    spec = data_spec(ranks=ranks, **WIDE)

    moved = data_parallel(parameters=spec.parameters, ranks=ranks, stage="ddp", gradient_bytes_per_element=4)

    assert ring_bytes(calls_of(spec), ranks) == pytest.approx(moved.wire_bytes.item(), rel=1e-12)


def test_memory_does_not_shrink_with_more_replicas(once: Runs) -> None:
    for ranks in (2, 4):
        outcome = once(job="data", phase="training", ranks=ranks, **WIDE)

        states = model_states(outcome.plan.spec.parameters, optimizer=PLAIN_ADAM, replicas=ranks)
        for part in ("weights", "gradients", "optimizer"):
            held = [c.measured for c in of(outcome, Quantity.MEMORY, part)]
            assert held == [getattr(states, part).item()] * ranks


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        (
            {"ranks": 4, "batch": 6},
            "batch",
            "A batch of 6 sequences cannot be dealt to 4 replicas evenly. The mean of their gradients is the whole "
            "batch's only when their shares are equal. Take 4 or 8, or another number of ranks.",
        ),
        (
            {"ranks": 2, "lost_rank": 2, "phase": "decode"},
            "lost_rank",
            "lost_rank is 2, but 2 ranks are numbered 0 to 1. Name one of them, or −1 to lose none.",
        ),
        (
            {"ranks": 1, "lost_rank": 0, "phase": "decode"},
            "lost_rank",
            "lost_rank is 0, but it is the only rank, and nobody would serve on. Take 2 ranks or more.",
        ),
    ],
)
def test_what_replicas_cannot_do_is_refused(given: dict[str, object], field: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        data_spec(**given)

    assert {problem.field: problem.message for problem in caught.value.problems} == {field: sentence}


def test_sockets_read_alone_must_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PATIENCE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        meter = wire.WireMeter(dist.HashStore(), rank=0, size=1, timeout_seconds=10)
        meter._peers = {0: [wire.open_connections()[sender.getsockname(), sender.getpeername()]]}
        over = threading.Event()
        with sender, receiver:
            assert meter.read_alone() == [0]
            chatter = threading.Thread(target=talk, args=(sender, receiver, over))
            chatter.start()
            try:
                with pytest.raises(
                    wire.NeverQuiet, match=r"0 s after the last call the sockets of rank 0 still move"
                ):
                    meter.read_alone()
            finally:
                over.set()
                chatter.join()
    meter.close()


def talk(sender: socket.socket, receiver: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        sender.sendall(b"x")
        receiver.recv(1)
