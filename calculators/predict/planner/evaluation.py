"""What each legal layout costs: the memory and the time of a whole block at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from calculators.predict.arrays import Floats, floats, whole
from calculators.predict.implementations import MEGATRON
from calculators.predict.memory import Memory, serving_memory, training_memory
from calculators.predict.planner.blocks import asked, blocks
from calculators.predict.planner.columns import AXES, MEMORY_PARTS, TIME_PARTS, BlockColumns, Evaluated
from calculators.predict.planner.task import Space, Task, space_of
from calculators.predict.shapes import Layouts, Phase
from calculators.predict.timing import StepTime, decode_step, training_step

LAYOUTS_IN_A_CHUNK = 60_000
"""Results of a chunk take 8 B for each of about thirty columns: this many stay near the processor."""

# C libraries give a freed array of this size back to the system, and every page of the next one must be fetched anew.
# Once a larger one was freed, glibc keeps them (mallopt(3), M_MMAP_THRESHOLD): half as long again without.
np.empty(2**21)


def evaluate(
    task: Task, space: Space | None = None, *, chunk: int = LAYOUTS_IN_A_CHUNK
) -> Iterator[Evaluated]:
    """All legal layouts of `space`, in chunks of about `chunk`, each with its memory and its time.

    The columns are those of COLUMNS: the axes; the parts of `memory.Memory` and their sum on the fullest device
    [bytes]; the parts of `timing.StepTime` and their sum [seconds]; tokens a second of the whole cluster.
    """
    wanted = space or space_of(task)
    for layouts in blocks(task, wanted, chunk=whole("chunk", chunk)):
        found = _evaluate(task, layouts)
        if found is not None:
            yield found


def _evaluate(task: Task, layouts: Layouts) -> Evaluated | None:
    """The legal layouts of a block; None where none is."""
    # No rule speaks of ZeRO or of recomputation, so that each choice of the rest is legal with all of those or none.
    mask = asked(task, replace(layouts, zero=0, recompute=0), devices=task.cluster.devices, batch=True)
    kept = np.flatnonzero(mask)
    if not len(kept):
        return None
    micro_batches, memory, time, seconds, tokens = _costs(task, layouts)
    columns = {axis: floats(getattr(layouts, axis)) for axis in AXES}
    columns["micro_batches"] = micro_batches
    columns |= {f"{name}_bytes": getattr(memory, name) for name in MEMORY_PARTS}
    columns["memory_bytes"] = memory.total
    columns |= {f"{name}_seconds": getattr(time, name) for name in TIME_PARTS}
    columns["step_seconds"] = seconds
    columns["tokens_per_second"] = tokens
    return Evaluated(
        columns=BlockColumns(
            arrays={
                name: values.reshape((1,) * (6 - values.ndim) + values.shape)
                for name, values in columns.items()
            },
            free=(np.size(layouts.zero), np.size(layouts.recompute)),
            ruled=mask.shape[2:],
            kept=None if len(kept) == mask.size else kept,
        )
    )


def _costs(task: Task, layouts: Layouts) -> tuple[Floats, Memory, StepTime, Floats, Floats]:
    """Micro-batches, memory, time by part and together, and tokens a second of each layout of a block."""
    shape, cluster, batch, tokens = task.shape, task.cluster, task.batch, task.tokens
    if task.phase == Phase.DECODE:
        of_a_replica = np.ceil(batch / floats(layouts.dp))
        memory = serving_memory(shape, layouts, batch=of_a_replica, context_tokens=tokens)
        time = decode_step(shape, layouts, cluster, batch=of_a_replica, context_tokens=tokens)
        seconds = time.total
        return floats(1), memory, time, seconds, batch / seconds
    # where it would be less than one, the layout is not legal and nobody sees its row
    micro_batches = np.maximum(1, batch / (floats(layouts.dp) * floats(layouts.micro_batch)))
    memory = training_memory(
        shape, layouts, tokens=tokens, micro_batches=micro_batches, optimizer=task.optimizer
    )
    program = replace(MEGATRON, gradient_bytes=task.optimizer.exchanged_gradient_bytes)
    time = training_step(shape, layouts, cluster, tokens=tokens, batch=batch, implementation=program)
    seconds = time.total
    return micro_batches, memory, time, seconds, batch * tokens / seconds
