"""Families composed on a mesh: right results, every byte explained by axis and pair, and who is whose neighbour."""

from collections.abc import Callable

import pytest

from calculators.lab.measurements import Quantity
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec, SpecError
from calculators.lab.terminal import plan_text
from tests.lab.conftest import ON_CPU, Outcome

SIZES = {
    "job": "mesh",
    "layers": 2,
    "hidden_size": 32,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 48,
    "tokens": 16,
    "batch": 4,
    "steps": 10,
}


def plan_of(**given: object) -> Plan:
    return make_plan(Spec.parse({**SIZES, **given}), ON_CPU)


def problems(**given: object) -> dict[str, str]:
    with pytest.raises(SpecError) as refused:
        Spec.parse({**SIZES, **given})
    return {problem.field: problem.message for problem in refused.value.problems}


def assert_proved_and_explained(outcome: Outcome, *calls: str) -> None:
    """No byte, call or weight is unexplained; the run made these `calls`, each counted on its axis, and no others."""
    ranks = outcome.plan.world_size
    assert outcome.is_verified
    assert [c for c in outcome.comparisons if c.unexplained] == []
    assert sum(c.quantity is Quantity.PAIR for c in outcome.comparisons) == ranks * (ranks - 1)
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.IDLE] == [0] * ranks
    counted = {c.prediction.detail for c in outcome.comparisons if c.quantity is Quantity.CALLS}
    assert counted == {"", *calls}


@pytest.mark.distributed
@pytest.mark.parametrize("order", ["tensor-inside", "pipeline-inside"])
def test_slices_of_stages_train_like_the_whole_model_whichever_is_inside(
    run: Callable[..., Outcome], order: str
) -> None:
    outcome = run(**SIZES, phase="training", ranks=4, tp=2, pp=2, microbatches=2, order=order)

    assert_proved_and_explained(outcome, "tp all-reduce", "pp send")


@pytest.mark.distributed
def test_requests_decode_through_slices_of_stages_and_the_token_ids_go_home(
    run: Callable[..., Outcome],
) -> None:
    outcome = run(**SIZES, ranks=4, tp=2, pp=2, microbatches=2)

    assert_proved_and_explained(outcome, "tp all-reduce", "pp send")
    wire = [c.prediction for c in outcome.comparisons if c.quantity is Quantity.WIRE]
    assert all(prediction.control for prediction in wire)


@pytest.mark.distributed
def test_one_mebibyte_a_call_is_explained_to_the_byte_on_both_axes(run: Callable[..., Outcome]) -> None:
    outcome = run(
        **{**SIZES, "hidden_size": 64, "tokens": 64, "batch": 128},
        phase="prefill",
        ranks=4,
        tp=2,
        pp=2,
        microbatches=2,
    )

    assert (
        {call.payload_bytes for call in outcome.plan.calls} == {outcome.plan.spec.activation_bytes} == {2**20}
    )
    assert_proved_and_explained(outcome, "tp all-reduce", "pp send")


@pytest.mark.distributed
def test_replicas_of_slices_train_like_the_whole_model(run: Callable[..., Outcome]) -> None:
    outcome = run(**SIZES, phase="training", ranks=4, tp=2, dp=2, schedule="gpipe")

    assert_proved_and_explained(outcome, "tp all-reduce", "dp all-reduce")


@pytest.mark.distributed
def test_eight_ranks_train_replicas_of_pipelines_of_slices(run: Callable[..., Outcome]) -> None:
    outcome = run(**SIZES, phase="training", ranks=8, tp=2, pp=2, dp=2, microbatches=2)

    assert_proved_and_explained(outcome, "tp all-reduce", "pp send", "dp all-reduce")


@pytest.mark.distributed
@pytest.mark.parametrize("phase", ["prefill", "training"])
def test_tokens_visit_the_experts_of_their_group_and_replicas_of_experts_learn_alike(
    run: Callable[..., Outcome], phase: str
) -> None:
    outcome = run(**SIZES, phase=phase, ranks=4, ep=2, dp=2, experts=4)

    sums = ["dp all-reduce"] if phase == "training" else []
    assert_proved_and_explained(outcome, "ep all-to-all", *sums)


def test_groups_of_experts_exchange_among_themselves_and_sum_what_they_have_in_common() -> None:
    plan = plan_of(phase="training", ranks=4, ep=2, dp=2, experts=4)

    exchanges, (shared, experts) = plan.calls[:-2], plan.calls[-2:]
    assert [call.groups for call in exchanges] == [((0, 1),), ((0, 1),), ((2, 3),), ((2, 3),)]
    assert exchanges[0].parts != exchanges[2].parts  # each group has tokens of its own
    of_experts = 2 * 4 * 2 * 32 * 64
    assert (shared.payload_bytes, shared.groups) == (4 * (plan.spec.parameters - of_experts), ())
    assert (experts.payload_bytes, experts.groups) == (4 * of_experts // 2, ((0, 2), (1, 3)))


def test_the_order_says_which_family_stays_inside_a_host() -> None:
    # Two hosts of two ranks: 0 and 1, 2 and 3. Decode: 2 all-reduces a layer, 1 layer a stage.
    inside, across = (
        plan_of(ranks=4, hosts=2, tp=2, pp=2, order=order) for order in ("tensor-inside", "pipeline-inside")
    )

    hidden = 4 * 32 * 4
    assert [call.groups for call in (inside.calls[0], across.calls[0])] == [
        ((0, 1), (2, 3)),
        ((0, 2), (1, 3)),
    ]
    assert formula(inside) == [
        [0, 20 * hidden, 10 * hidden, 0],
        [20 * hidden, 0, 0, 10 * hidden],
        [0, 0, 0, 20 * hidden],
        [0, 0, 20 * hidden, 0],
    ]
    assert formula(across) == [
        [0, 10 * hidden, 20 * hidden, 0],
        [0, 0, 0, 20 * hidden],
        [20 * hidden, 0, 0, 10 * hidden],
        [0, 20 * hidden, 0, 0],
    ]


def formula(plan: Plan) -> list[list[float]]:
    """Predicted bytes from each rank to each other, without headers and token ids."""
    cells = [[0.0] * plan.world_size for _ in range(plan.world_size)]
    for p in plan.predictions:
        if p.quantity is Quantity.PAIR and p.peer is not None:
            cells[p.rank][p.peer] = p.formula
    return cells


def test_a_plan_says_which_groups_make_a_call() -> None:
    text = plan_text(plan_of(phase="training", ranks=8, tp=2, pp=2, dp=2, microbatches=2))

    assert "Ranks of the mesh:\n  rank 0: layer 0\n" in text
    assert "4 groups of 2" in text
    assert "2 → 0" in text


def test_replicas_that_serve_never_speak() -> None:
    assert {call.axis for call in plan_of(ranks=4, tp=2, dp=2).calls} == {"tp"}
    assert plan_of(ranks=2, dp=2).calls == ()


def test_each_stage_sums_what_it_holds_and_the_ends_hold_more() -> None:
    plan = plan_of(phase="training", ranks=8, tp=2, pp=2, dp=2, microbatches=2)

    first, last = (call for call in plan.calls if call.axis == "dp")
    layer = (4 * 32 * 32 + 2 * 32 * 64) // 2 + 2 * 32
    assert (first.payload_bytes, first.groups) == (4 * (layer + 48 * 32), ((0, 4), (1, 5)))
    assert (last.payload_bytes, last.groups) == (4 * (layer + 48 * 32 + 32), ((2, 6), (3, 7)))
    assert plan.layers_by_rank == (range(1), range(1), range(1, 2), range(1, 2)) * 2


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        (
            {"tp": 2, "pp": 2, "dp": 2},
            "ranks",
            "ranks is 4, but tp × pp × dp is 2 × 2 × 2 = 8. Every rank has one place in the mesh: make the two equal.",
        ),
        (
            {"tp": 2, "pp": 2, "phase": "training", "schedule": "zbv"},
            "schedule",
            "schedule is “zbv”, but each rank of a mesh holds one stage. Take “gpipe” or “1f1b”, or run the pipeline "
            "job.",
        ),
        (
            {"ep": 2, "tp": 2},
            "ep",
            "ep is 2, but tp is 2 and pp is 1. The lab composes experts with replicas (dp) only: set tp and pp to 1, "
            "or ep to 1.",
        ),
        (
            {"ep": 2, "dp": 4},
            "ranks",
            "ranks is 4, but ep × dp is 2 × 4 = 8. Every rank has one place in the mesh: make the two equal.",
        ),
        (
            {"ep": 4, "experts": 1, "top_k": 1},
            "experts",
            "experts is 1, but ep is 4: one expert is a dense block, and nothing can be dealt out. Take 4 experts or "
            "more, or the data job.",
        ),
        (
            {"ep": 2, "dp": 2, "microbatches": 2},
            "microbatches",
            "microbatches is 2, but around experts a step takes the batch whole. Leave it at 1.",
        ),
        (
            {"ep": 2, "dp": 2, "batch": 6},
            "batch",
            "A batch of 6 sequences cannot be dealt to 4 ranks evenly. Around the experts each rank works on its own "
            "sequences, as many as the others. Take 4 or 8, or another number of ranks.",
        ),
        (
            {"tp": 2, "dp": 2, "batch": 5},
            "batch",
            "A batch of 5 sequences cannot be dealt to 2 replicas evenly. Every replica works on the same number of "
            "sequences. Take 4 or 6, or another number of replicas (dp).",
        ),
        (
            {"pp": 4},
            "layers",
            "2 layers cannot be dealt to 4 stages evenly. Each rank is one stage of the same number of layers here "
            "(rule R4). Take 4, or another number of ranks.",
        ),
        (
            {"tp": 4, "ffn_width": 66},
            "ffn_width",
            "A feed-forward width of 66 cannot be cut into 4 equal slices. Tensor parallelism gives every rank the "
            "same number of columns. Take 64 or 68, or another number of slices (tp).",
        ),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused_in_a_sentence(
    given: dict[str, object], field: str, sentence: str
) -> None:
    assert problems(**{"ranks": 4, **given}) == {field: sentence}
