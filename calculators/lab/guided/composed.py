"""What the lessons claim of families together: which goes inside a host, and SP beside CP on one model."""

import statistics
from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.levels import algorithm_bytes
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Quantity
from calculators.lab.splits.memory import SAVED
from calculators.predict.collectives import Kind

# Narrow and with many sequences: 512 KiB a call and hardly any work, so that the link outweighs what a call costs.
_PLACED = {
    "job": "mesh",
    "phase": "decode",
    "ranks": 4,
    "hosts": 2,
    "link_mbit": 100,
    "tp": 2,
    "pp": 2,
    "layers": 8,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 64,
    "batch": 2048,
    "steps": 10,
}
_LEAST_SLOWER = 3.0
"""How many times slower the reversed placement must be for the claim to hold."""

_REGIONS = {
    "phase": "training",
    "layers": 2,
    "hidden_size": 128,
    "ffn_width": 256,
    "vocab_size": 64,
    "batch": 2,
    "tokens": 64,
    "steps": 10,
}


def _between_hosts(result: Result) -> float:
    """Wire bytes of a token that crossed from one host to another."""
    half = result.run.world_size // result.spec.hosts
    return (
        sum(
            m.value
            for m in result.measurements
            if m.quantity is Quantity.PAIR and m.peer is not None and m.rank // half != m.peer // half
        )
        / result.spec.steps
    )


def _predicted_between_hosts(result: Result) -> float:
    half = result.run.world_size // result.spec.hosts
    return (
        sum(
            c.predicted
            for c in result.comparisons
            if c.quantity is Quantity.PAIR and c.peer is not None and c.rank // half != c.peer // half
        )
        / result.spec.steps
    )


def _placement(results: Mapping[str, Result]) -> Verdict:
    seconds = {name: statistics.median(result.seconds_of_steps()) for name, result in results.items()}
    slower = seconds["reversed"] / seconds["right"]
    crossed = {name: _between_hosts(result) for name, result in results.items()}
    return Verdict(
        outcome=held_if(slower >= _LEAST_SLOWER),
        sentence=f"A token took {1e3 * seconds['right']:.3g} ms with tensor parallelism inside the hosts and the "
        f"pipeline across, and {1e3 * seconds['reversed']:.3g} ms the other way round, {slower:.1f} × as long: "
        f"{crossed['right']:,.0f} bytes crossed between the hosts against {crossed['reversed']:,.0f}.",
        figures=(
            Figure(
                what="time of a token, reversed ÷ tensor inside", unit="×", measured=slower, level=Level.TIME
            ),
            *(
                Figure(
                    what=f"wire bytes between the hosts for a token, {title}",
                    unit="B",
                    predicted=_predicted_between_hosts(results[name]),
                    measured=crossed[name],
                    level=Level.WIRE,
                    decides=False,
                )
                for name, title in (("right", "tensor inside"), ("reversed", "pipeline inside"))
            ),
        ),
    )


def _sequence_or_context(results: Mapping[str, Result]) -> Verdict:
    saved = {name: r.measured(Quantity.MEMORY, rank=0, detail=SAVED) for name, r in results.items()}
    sequence = (
        algorithm_bytes(results["sp"], Kind.ALL_GATHER, Kind.REDUCE_SCATTER, axis="sp")
        / results["sp"].spec.steps
    )
    context = algorithm_bytes(results["cp"], Kind.SEND, axis="cp") / results["cp"].spec.steps
    alone = results["sp-alone"].measured(Quantity.WIRE)
    held = (
        alone == 0
        and saved["sp-alone"] == saved["one"]
        and saved["cp"] < saved["one"]
        and saved["sp"] < saved["tp"]
        and saved["cp"] < saved["tp"]
    )
    titles = {
        "one": "one device",
        "sp-alone": "SP at TP = 1",
        "cp": "CP on 2, TP = 1",
        "tp": "TP = 2",
        "sp": "TP = 2 and SP",
    }
    return Verdict(
        outcome=held_if(held),
        sentence=f"At TP = 1, SP sent {alone:g} bytes and saved nothing, while CP on two ranks kept "
        f"{saved['cp'] / saved['one']:.0%} of what one device keeps and sent {context:,.0f} bytes of keys, values and "
        f"their gradients a step. At TP = 2, SP kept {saved['sp'] / saved['tp']:.0%} of what TP alone keeps and sent "
        f"{sequence:,.0f} bytes of hidden states.",
        figures=(
            *(
                Figure(
                    what=f"saved for backward on a rank, {titles[name]}",
                    unit="B",
                    predicted=results[name].predicted(Quantity.MEMORY, rank=0, detail=SAVED),
                    measured=saved[name],
                    level=Level.MEMORY,
                )
                for name in titles
            ),
            Figure(
                what="bytes sent for hidden states, TP = 2 and SP",
                unit="B",
                measured=sequence,
                level=Level.ALGORITHM,
                decides=False,
            ),
            Figure(
                what="bytes sent for keys, values and their gradients, CP",
                unit="B",
                measured=context,
                level=Level.ALGORITHM,
                decides=False,
            ),
            *(
                Figure(
                    what=f"wire bytes of a step, {titles[name]}",
                    unit="B",
                    predicted=results[name].predicted(Quantity.WIRE) / results[name].spec.steps,
                    measured=results[name].measured(Quantity.WIRE) / results[name].spec.steps,
                    level=Level.WIRE,
                    decides=name == "sp-alone",
                )
                for name in titles
            ),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="placement",
        title="Tensor parallelism inside, the pipeline across",
        family="tp",
        lesson="composing-on-two-tiers",
        claim="With a slow link between hosts, tensor parallelism across them is at least 3 times slower than "
        "inside them.",
        about="Two emulated hosts of two ranks each, 100 Mbit/s between them. Both runs decode with TP = 2 and PP = "
        "2; only which ranks form the tensor-parallel pairs differs. The same hardware, the same layout, another "
        "order.",
        level=Level.TIME,
        variants=(
            variant("right", "TP inside, PP across", _PLACED),
            variant("reversed", "PP inside, TP across", _PLACED, {"order": "pipeline-inside"}),
        ),
        judge=_placement,
        needs=("wire", "hosts"),
    ),
    Guided(
        name="sp-or-cp",
        title="Sequence or context parallelism, side by side",
        family="cp",
        lesson="sp-or-cp",
        claim="Sequence parallelism needs tensor parallelism and cuts what that leaves whole; context parallelism "
        "stands alone and cuts everything by tokens.",
        about="One model, one batch. Outside attention both leave a rank with its share of the tokens. Inside "
        "attention, sequence parallelism has all tokens of some heads, gathered; context parallelism has some "
        "tokens of all heads, and sends keys and values around. So their bytes are of different things, and at TP = "
        "1 only one of them does anything.",
        level=Level.MEMORY,
        variants=(
            variant("one", "1 device", {"job": "tensor", "ranks": 1, **_REGIONS}),
            variant("sp-alone", "SP at TP = 1", {"job": "tensor", "ranks": 1, "sequence": True, **_REGIONS}),
            variant("cp", "CP on 2, TP = 1", {"job": "context", **_REGIONS}),
            variant("tp", "TP = 2", {"job": "tensor", **_REGIONS}),
            variant("sp", "TP = 2 and SP", {"job": "tensor", "sequence": True, "regather": True, **_REGIONS}),
        ),
        judge=_sequence_or_context,
    ),
)
