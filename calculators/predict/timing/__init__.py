"""How long a step takes, and what takes it: training, prefill and decode, for one layout or for millions.

Five kinds of work, each counted and divided by a speed of the data sheet:

- matrix products: their operations, the operands that the device fetches for each batch of outputs it works on at once
  (nothing hides that fetch: all its units begin together), the outputs, and half such a batch lost at the end;
- element-wise operations: the bytes that they move through memory (`implementations`);
- exchanges: rounds × latency + bytes ÷ bandwidth on every tier of links that a group crosses, first among the members
  inside a block, then between blocks, each device over its own share of the outer link. Large tensors go around rings,
  n−1 rounds for a gather or a scatter; the small ones of decode are sent at once, one round each (`clusters.Link`);
- the pipeline's bubble: every other stage's turn, once, divided by the chunks that a stage has;
- the optimizer: the bytes of weights, gradients and moments that it reads and writes.

What travels is what `traffic.composed` counts, in its own words. Left out here: calls that it counts only with
`vocabulary`.

Two shares of the data sheet are fitted, and no more (`Efficiency`). Arrays keep the shapes of the axes that they depend
on; only what depends on all of them has a value for each layout.
"""

from calculators.predict.timing.inference import decode_step, prefill
from calculators.predict.timing.speeds import FITTED, PEAK, Efficiency
from calculators.predict.timing.steps import StepTime
from calculators.predict.timing.training import training_step

__all__ = ["FITTED", "PEAK", "Efficiency", "StepTime", "decode_step", "prefill", "training_step"]
