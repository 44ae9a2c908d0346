"""What travels on each axis of a layout, how often and how large, taken from the composed prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calculators.predict.collectives import Kind
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.predict.traffic import Composition, composed


@dataclass(frozen=True, kw_only=True)
class Message:
    """Calls of one kind that one group of an axis makes: how many per token, prompt or step, and the size of one.

    `varies` where stages differ in it: then these are the figures of the stage where it is most. `to` is 1 for sends
    to the next stage, −1 for those back, 2 for calls between the first and the last stage, else 0.
    """

    axis: str
    kind: Kind
    what: str
    calls: float
    bytes_per_call: float
    to: int = 0
    varies: bool = False


@dataclass(frozen=True, kw_only=True)
class Sent:
    """All that travels in one layout. `busiest_bytes` is what the busiest device sends per token, prompt or step."""

    messages: tuple[Message, ...]
    busiest_bytes: float
    is_even: bool  # whether every device sends as much
    return_calls: float
    return_bytes: float

    def of(self, axis: str) -> tuple[Message, ...]:
        """What travels on one axis."""
        return tuple(message for message in self.messages if message.axis == axis)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes on which anything travels, in the order in which they are shown."""
        talking = {message.axis for message in self.messages}
        return tuple(axis for axis in ("tp", "cp", "ep", "etp", "pp", "dp", "edp") if axis in talking)


def sent_in(
    layout: Layout,
    shape: ModelShape,
    *,
    phase: Phase,
    batch: int,
    tokens: int,
    micro_batches: int,
    context: str,
    regather: bool,
) -> Sent:
    """What `layout` moves for `batch` sequences, all replicas together (of one micro-batch, in training)."""
    each = batch // layout.dp
    moved = composed(
        shape,
        Layouts.of(layout, micro_batch=each),
        phase=phase,
        tokens=tokens,
        batch=each,
        micro_batches=micro_batches,
        context=context,
        regather=regather,
        gradient_bytes_per_element=shape.bytes_per_element,
    )
    rows = [_stage_messages(moved, stage) for stage in range(layout.pp)]
    messages = []
    for versions in zip(*rows, strict=True):
        most = max(versions, key=lambda message: message.calls * message.bytes_per_call)
        if most.calls:
            differ = not most.to and len({(m.calls, m.bytes_per_call) for m in versions}) > 1
            messages.append(replace(most, varies=differ))
    if layout.zero == 3:  # weights are gathered before there are gradients
        messages.sort(
            key=lambda message: message.kind is Kind.REDUCE_SCATTER and message.axis in ("dp", "edp")
        )
    return Sent(
        messages=tuple(messages),
        busiest_bytes=moved.wire_bytes.item(),
        is_even=layout.pp == 1,
        return_calls=moved.control_calls.item(),
        return_bytes=moved.control_bytes.item(),
    )


def _stage_messages(moved: Composition, stage: int) -> list[Message]:
    has = moved.on_stage(stage)
    found = []
    for share in moved.shares:
        calls = (has.of(share.calls) * (share.ranks > 1)).item()
        found.append(
            Message(
                axis=share.axis,
                kind=share.kind,
                what=share.what,
                calls=calls,
                bytes_per_call=has.of(share.full).item() / calls if calls else 0.0,
                to=share.to,
            )
        )
    return found
