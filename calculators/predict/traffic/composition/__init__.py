"""What every axis of a composed layout moves: dp, tp (with sp), pp, cp, ep and etp at once, for many layouts.

Ranks are placed as in `placement`, layers on stages as in `stages`. Everything is a sum over what a rank has of the
model (dense and sparse layers, the first and the last stage's own parts) times what one of each moves, so nothing is
larger than the axes that it depends on, until somebody asks for a total.

What is assumed beyond the families' own pages:
- Gradients are summed over dp·cp ranks, since ranks that share a sequence hold the same weights; those of experts over
  edp = dp·tp·cp/(ep·etp) ranks.
- Experts that tp's group shares (ep = 1, etp = tp) work like any feed-forward block. Otherwise each rank sends its own
  1/tp of the tokens to the experts; without sequence parallelism its tensor-parallel group gathers the results
  afterwards. Ranks of an etp group gather the copies that arrived at them, and reduce-scatter the results, as
  Megatron-LM's all-to-all dispatcher does. The shared expert is split by tp, as a block beside the others.
- In decode, tokens of one sequence are on every cp rank, and their caches in slices (`context_parallel`).
Left out: the small sums of norms' gradients under sequence parallelism, and routing scores.
"""

from calculators.predict.traffic.composition.composing import composed
from calculators.predict.traffic.composition.shares import ENDS, FAMILIES, NEXT, PREVIOUS, Share
from calculators.predict.traffic.composition.stages import Has
from calculators.predict.traffic.composition.totals import Composition

__all__ = ["ENDS", "FAMILIES", "NEXT", "PREVIOUS", "Composition", "Has", "Share", "composed"]
