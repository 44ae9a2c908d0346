"""What the lessons claim of context parallelism: it exchanges forward too, saves memory, and may hide or stall."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Curve, Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.levels import algorithm_bytes
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Doing, Quantity
from calculators.lab.splits.memory import SAVED
from calculators.predict.collectives import Kind

_MODEL = {"layers": 2, "hidden_size": 128, "ffn_width": 256, "vocab_size": 64, "batch": 2, "steps": 10}
_PREFILL = {"job": "context", "phase": "prefill", "tokens": 128, **_MODEL}
_TRAINING = {"job": "context", "phase": "training", "tokens": 128, **_MODEL}
# Keys and values of 1 MiB a hop, and a little work to hide them behind.
_RING = {
    "job": "context",
    "phase": "prefill",
    "layers": 2,
    "hidden_size": 128,
    "attention_heads": 4,
    "ffn_width": 256,
    "vocab_size": 64,
    "batch": 1,
    "tokens": 2048,
    "hosts": 2,
    "steps": 10,
}
_RUNGS = (0.0, 100.0, 20.0)
"""Mbit/s of the ring's link; 0 is as fast as this machine moves bytes."""


def _forward_too(results: Mapping[str, Result]) -> Verdict:
    forward, training = results["forward"], results["training"]
    sent = [
        algorithm_bytes(result, Kind.SEND, axis="cp") / result.spec.steps for result in (forward, training)
    ]
    wire = [result.measured(Quantity.WIRE) / result.spec.steps for result in (forward, training)]
    return Verdict(
        outcome=held_if(sent[0] > 0 and sent[1] > sent[0]),
        sentence=f"Reading a prompt, ranks sent each other {sent[0]:,.0f} bytes of keys and values; a training step "
        f"on as many tokens sent {sent[1]:,.0f}: the same again backward, and their gradients.",
        figures=tuple(
            Figure(what=f"{level} of {what}", unit="B", predicted=p, measured=m, level=kind, decides=decides)
            for level, kind, values, decides in (
                ("bytes of keys, values and their gradients", Level.ALGORITHM, sent, True),
                ("wire bytes", Level.WIRE, wire, False),
            )
            for what, result, m in zip(
                ("a forward pass", "a training step"), (forward, training), values, strict=True
            )
            for p in (
                result.predicted(Quantity.WIRE) / result.spec.steps
                if kind is Level.WIRE
                else result.predicted(Quantity.HANDED, detail="cp send") / result.spec.steps,
            )
        ),
    )


def _memory_by_devices(results: Mapping[str, Result]) -> Verdict:
    kept = [result.measured(Quantity.MEMORY, rank=0, detail=SAVED) for result in results.values()]
    ranks = [result.run.world_size for result in results.values()]
    shares = [here * n / kept[0] for here, n in zip(kept, ranks, strict=True)]
    return Verdict(
        outcome=held_if(all(abs(share - 1) <= 0.05 for share in shares)),
        sentence="What a rank saves for its backward pass was "
        + ", ".join(f"{here:,.0f} bytes on {n}" for here, n in zip(kept, ranks, strict=True))
        + " devices.",
        figures=tuple(
            Figure(
                what=f"saved for backward, {n} devices",
                unit="B",
                predicted=result.predicted(Quantity.MEMORY, rank=0, detail=SAVED),
                measured=here,
                level=Level.MEMORY,
            )
            for n, here, result in zip(ranks, kept, results.values(), strict=True)
        ),
        curves=(
            Curve(
                name="saved for backward on a rank",
                x_title="devices",
                y_title="bytes",
                x=tuple(map(float, ranks)),
                predicted=tuple(kept[0] * ranks[0] / n for n in ranks),
                measured=tuple(kept),
            ),
        ),
    )


def stalled(result: Result) -> float:
    """The share of their time that ranks waited for a block or for their own to leave."""
    seconds = {doing: result.measured(Quantity.SECONDS, detail=doing) for doing in Doing}
    return 1 - seconds[Doing.BUSY] / sum(seconds.values())


def _hidden_or_stalled(results: Mapping[str, Result]) -> Verdict:
    shares = [stalled(result) for result in results.values()]
    names = ["this machine's own speed" if rate == 0 else f"{rate:g} Mbit/s" for rate in _RUNGS]
    return Verdict(
        outcome=held_if(shares[0] < 0.5 < shares[-1]),
        sentence="Of their time ranks waited for the ring "
        + ", ".join(f"{share:.0%} at {name}" for share, name in zip(shares, names, strict=True))
        + ".",
        figures=tuple(
            Figure(what=f"time waiting for the ring at {name}", unit="×", measured=share, level=Level.TIME)
            for name, share in zip(names, shares, strict=True)
        ),
    )


EXPERIMENTS = (
    Guided(
        name="cp-forward",
        title="Context parallelism exchanges forward, too",
        family="cp",
        lesson="context-parallelism",
        claim="Context parallelism exchanges keys and values in the forward pass as well, not only in training.",
        about="Every query must meet the keys of all earlier tokens, and those are on other ranks. So reading a "
        "prompt already sends blocks around the ring. Some exam answers put the exchange in the backward pass alone.",
        level=Level.ALGORITHM,
        variants=(
            variant("forward", "A prompt read, 2 ranks", _PREFILL),
            variant("training", "A training step, 2 ranks", _TRAINING),
        ),
        judge=_forward_too,
    ),
    Guided(
        name="cp-memory",
        title="Context parallelism divides activation memory by the devices",
        family="cp",
        lesson="context-parallelism",
        claim="What a rank saves for its backward pass falls as 1/devices: every activation is cut by tokens.",
        about="The same sequences on one, two and four ranks. Unlike sequence parallelism beside tensor "
        "parallelism, nothing stays whole: attention's own tensors are cut as well.",
        level=Level.MEMORY,
        variants=tuple(
            variant(f"devices-{n}", "1 device" if n == 1 else f"{n} devices", _TRAINING, {"ranks": n})
            for n in (1, 2, 4)
        ),
        judge=_memory_by_devices,
    ),
    Guided(
        name="ring-stalls",
        title="A ring hidden, and a ring stalled",
        family="cp",
        lesson="context-parallelism",
        claim="On a fast link the ring's blocks travel while ranks compute; on a slow one the ranks wait.",
        about="Two emulated hosts with one rank each pass blocks of keys and values over a link that is slowed down "
        "from run to run. The timeline of each run shows how long ranks waited for a block.",
        level=Level.TIME,
        variants=tuple(
            variant(
                f"link-{rate:g}" if rate else "link-free",
                f"{rate:g} Mbit/s" if rate else "As fast as it goes",
                _RING,
                {"link_mbit": rate},
            )
            for rate in _RUNGS
        ),
        judge=_hidden_or_stalled,
        needs=("hosts",),
    ),
)
