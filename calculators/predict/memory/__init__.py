"""What each device of a layout must hold, in training and in serving, and whether that fits.

ranks        the fullest rank: weights, gradients, optimizer, activations, cache, and what comes and goes
states       weights, gradients and optimizer state; optimizers as data
activations  what the forward pass keeps, tensor by tensor
kv_cache     keys and values of served sequences
levers       what to change where it does not fit
formulas     one case as formulas
"""

from calculators.predict.memory.ranks import (
    PARTS,
    RESERVE,
    Memory,
    fits,
    room,
    serving_memory,
    training_memory,
)
from calculators.predict.memory.states import (
    ACCUMULATING_ADAM,
    BRIDGE_ADAM,
    MEGATRON_ADAM,
    MIXED_ADAM,
    OPTIMIZERS,
    PLAIN_ADAM,
    Optimizer,
    model_states,
    optimizer,
)

__all__ = [
    "ACCUMULATING_ADAM",
    "BRIDGE_ADAM",
    "MEGATRON_ADAM",
    "MIXED_ADAM",
    "OPTIMIZERS",
    "PARTS",
    "PLAIN_ADAM",
    "RESERVE",
    "Memory",
    "Optimizer",
    "fits",
    "model_states",
    "optimizer",
    "room",
    "serving_memory",
    "training_memory",
]
