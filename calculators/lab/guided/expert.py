"""What the lessons claim of expert parallelism: the hot expert, and that a dense model has nothing to exchange."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Quantity
from calculators.lab.splits.routing import DROPPED, RECEIVED

_MODEL = {
    "job": "expert",
    "phase": "prefill",
    "ranks": 4,
    "layers": 2,
    "hidden_size": 128,
    "ffn_width": 256,
    "vocab_size": 64,
    "batch": 4,
    "tokens": 64,
    "experts": 8,
    "top_k": 2,
    "steps": 10,
}


def _hottest(result: Result) -> tuple[float, float]:
    """Copies of tokens that came to the busiest rank, ÷ an equal share, and its number."""
    received = [result.values(RECEIVED, rank=rank)[-1] for rank in range(result.run.world_size)]
    most = max(received)
    return most * len(received) / sum(received), received.index(most)


def _hot_expert(results: Mapping[str, Result]) -> Verdict:
    balanced, skewed, capped = (_hottest(results[name])[0] for name in ("balanced", "skewed", "capped"))
    dropped = sum(results["capped"].values(DROPPED, rank=rank)[-1] for rank in range(4))
    hot = _hottest(results["skewed"])[1]
    sent = [
        sum(
            results["skewed"].measured(Quantity.PAIR, rank=rank, peer=peer)
            for rank in range(4)
            if rank != peer
        )
        for peer in range(4)
    ]
    return Verdict(
        outcome=held_if(skewed > balanced and capped < skewed and dropped > 0),
        sentence=f"The busiest rank got {balanced:.2f} × an equal share of the tokens' copies when experts were "
        f"wanted alike, and {skewed:.2f} × when a few were wanted most. A capacity of 1.25 brought that to "
        f"{capped:.2f} ×, and dropped {dropped:,.0f} copies in each layer.",
        figures=(
            *(
                Figure(
                    what=f"copies at the busiest rank ÷ an equal share, {what}",
                    unit="×",
                    measured=value,
                    level=Level.RESULT,
                )
                for what, value in (
                    ("wanted alike", balanced),
                    ("skewed", skewed),
                    ("skewed, capacity 1.25", capped),
                )
            ),
            *(
                Figure(
                    what=f"wire bytes to rank {peer}" + (", the hot one" if peer == hot else ""),
                    unit="B",
                    predicted=sum(
                        results["skewed"].predicted(Quantity.PAIR, rank=rank, peer=peer)
                        for rank in range(4)
                        if rank != peer
                    ),
                    measured=value,
                    level=Level.WIRE,
                    decides=False,
                )
                for peer, value in enumerate(sent)
            ),
        ),
    )


def _dense(results: Mapping[str, Result]) -> Verdict:
    calls, sent = (results["dense"].measured(quantity) for quantity in (Quantity.CALLS, Quantity.WIRE))
    return Verdict(
        outcome=held_if(calls == sent == 0),
        sentence=f"With no experts to choose from, ranks made {calls:g} calls and sent {sent:g} bytes.",
        figures=(
            Figure(what="calls", unit="calls", predicted=0, measured=calls, level=Level.HANDED),
            Figure(what="wire bytes", unit="B", predicted=0, measured=sent, level=Level.WIRE),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="hot-expert",
        title="The hot expert",
        family="ep",
        lesson="expert-parallelism",
        claim="When a few experts are wanted most, their rank gets more than its share, and everybody waits for it; a "
        "capacity bounds that, and drops tokens.",
        about="Eight experts on four ranks, two for each token. In the second run the r-th expert is wanted as r to "
        "the power −1.2. In the third an expert takes 1.25 times an equal share and no more. Which experts a token "
        "visits is drawn from the seed, so that the plan knows the bytes of every pair before the run.",
        level=Level.RESULT,
        variants=(
            variant("balanced", "Wanted alike", _MODEL),
            variant("skewed", "Skew 1.2", _MODEL, {"skew": 1.2}),
            variant("capped", "Skew 1.2, capacity 1.25", _MODEL, {"skew": 1.2, "capacity": 1.25}),
        ),
        judge=_hot_expert,
    ),
    Guided(
        name="ep-dense",
        title="Expert parallelism on a dense model",
        family="ep",
        lesson="expert-parallelism",
        claim="A dense model has no experts to send tokens to: expert parallelism does nothing for it.",
        about="The same model with one feed-forward block instead of experts: each rank has it whole, and no token "
        "leaves.",
        level=Level.WIRE,
        variants=(variant("dense", "One block, no experts", _MODEL, {"ranks": 2, "experts": 1, "top_k": 1}),),
        judge=_dense,
    ),
)
