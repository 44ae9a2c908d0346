"""Several families at once, on a mesh of ranks: tensor parallelism in the stages of pipelines, and replicas of both.

Where there are experts, `replicated_experts` has what is asked for and called.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from calculators.lab.calls import Call, Groups
from calculators.lab.choices import Family, Order
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Spec
from calculators.lab.splits import in_flight, pipeline, replicated_experts, tensor
from calculators.lab.splits.memory import parameters
from calculators.lab.splits.stages import Stages, crossings
from calculators.predict.collectives import Kind

Place = dict[Family, int]
"""Where a rank is along each axis of the mesh."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The axes of a mesh and their sizes, the one whose ranks are neighbours last."""

    axes: tuple[Family, ...]
    sizes: tuple[int, ...]

    def size(self, axis: Family) -> int:
        return self.sizes[self.axes.index(axis)]

    def places(self) -> Iterator[Place]:
        """Where each rank is, in order of their numbers."""
        for indices in product(*map(range, self.sizes)):
            yield dict(zip(self.axes, indices, strict=True))

    def rank_at(self, place: Place) -> int:
        """The number of the rank that is there."""
        rank = 0
        for axis, size in zip(self.axes, self.sizes, strict=True):
            rank = rank * size + place[axis]
        return rank

    def groups(self, axis: Family, **fixed: int) -> Groups:
        """The groups along `axis`: ranks that differ in nothing else; only those that are at `fixed`."""
        heads = [
            place
            for place in self.places()
            if place[axis] == 0 and all(place[other] == index for other, index in fixed.items())  # type: ignore[index]
        ]
        return tuple(
            tuple(self.rank_at({**head, axis: index}) for index in range(self.size(axis))) for head in heads
        )


def mesh_of(spec: Spec) -> Mesh:
    """Replicas are farthest apart; of tensor and pipeline parallelism the order says which is inside."""
    if spec.order is Order.TENSOR_INSIDE:
        return Mesh(axes=("dp", "pp", "tp"), sizes=(spec.dp, spec.pp, spec.tp))
    return Mesh(axes=("dp", "tp", "pp"), sizes=(spec.dp, spec.tp, spec.pp))


def stages_of(spec: Spec) -> Stages:
    """The stages of each of its pipelines."""
    return Stages(layers=spec.layers, ranks=spec.pp)


def contradictions(spec: Spec) -> Iterator[Problem]:
    """As many ranks as the mesh has places, and whatever each of its families asks for."""
    if spec.ep > 1:
        yield from replicated_experts.contradictions(spec)
        return
    if spec.tp * spec.pp * spec.dp != spec.ranks:
        yield Problem(
            "ranks",
            f"ranks is {spec.ranks}, but tp × pp × dp is {spec.tp} × {spec.pp} × {spec.dp} = "
            f"{spec.tp * spec.pp * spec.dp}. Every rank has one place in the mesh: make the two equal.",
        )
    if spec.schedule.has_chunks:
        yield Problem(
            "schedule",
            f"schedule is “{spec.schedule}”, but each rank of a mesh holds one stage. Take “gpipe” or “1f1b”, or run "
            "the pipeline job.",
        )
    yield from tensor.whole_heads(spec, spec.tp)
    yield from must_divide(
        "ffn_width",
        spec.ffn_width,
        spec.tp,
        f"A feed-forward width of {spec.ffn_width} cannot be cut into {spec.tp} equal slices. "
        "Tensor parallelism gives every rank the same number of columns.",
        "slices (tp)",
    )
    yield from pipeline.equal_stages(spec, spec.pp)
    uneven = [
        *must_divide(
            "batch",
            spec.batch,
            spec.dp,
            f"A batch of {spec.batch} sequences cannot be dealt to {spec.dp} replicas evenly. "
            "Every replica works on the same number of sequences.",
            "replicas (dp)",
        )
    ]
    yield from uneven or pipeline.equal_microbatches(spec, spec.batch // spec.dp)
    if not spec.schedule.has_chunks:
        yield from pipeline.enough_microbatches(spec, spec.pp)


def calls(spec: Spec) -> Iterator[Call]:
    """All-reduces inside layers, sends between stages, and one all-reduce of a rank's gradients among replicas."""
    if spec.ep > 1:
        yield from replicated_experts.calls(spec)
        return
    mesh, stages = mesh_of(spec), stages_of(spec)
    sequences = spec.batch // spec.dp
    if spec.tp > 1:
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=sequences // spec.microbatches * spec.tokens_in_flight * spec.row_bytes,
            times=spec.layers // spec.pp * tensor.all_reduces_per_layer(spec) * spec.microbatches,
            what="hidden state, summed over the slices of a stage after attention and after feed-forward",
            axis="tp",
            groups=mesh.groups("tp"),
        )
    for pipe in mesh.groups("pp"):
        yield from crossings(spec, stages, place=pipe.__getitem__, sequences=sequences)
    if spec.is_training and spec.dp > 1:
        for stage in range(spec.pp):
            yield Call(
                op=Kind.ALL_REDUCE,
                payload_bytes=_weight_bytes(spec, stage),
                times=1,
                what=f"gradients of stage {stage}, summed over all replicas",
                axis="dp",
                groups=mesh.groups("dp", pp=stage),
            )


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """The layers of its stage, or of each a slice; around experts something of all."""
    if spec.ep > 1:
        return (range(spec.layers),) * spec.ranks
    stages = stages_of(spec)
    return tuple(stages.layers_of(place["pp"]) for place in mesh_of(spec).places())


def memory(spec: Spec) -> Iterable[Prediction]:
    """In training: the states of a slice of a stage, and what the micro-batches in flight there keep."""
    if not spec.is_training:
        return
    if spec.ep > 1:
        yield from replicated_experts.memory(spec)
        return
    stages, sequences = stages_of(spec), spec.batch // spec.dp
    for rank, place in enumerate(mesh_of(spec).places()):
        yield from in_flight.predictions(
            spec, stages, rank, place=place["pp"], sequences=sequences, tp=spec.tp
        )


def _weight_bytes(spec: Spec, stage: int) -> int:
    """What one rank holds of a stage."""
    elements = parameters(
        spec, layers=spec.layers // spec.pp, is_first=stage == 0, is_last=stage == spec.pp - 1, tp=spec.tp
    )
    return spec.dtype.bytes_per_element * int(elements)
