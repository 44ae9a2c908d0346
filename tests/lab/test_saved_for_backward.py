"""What a rank should keep for the backward pass, and what the lab's own block keeps, in one process."""

import pytest
import torch

from calculators.lab.jobs import transformer
from calculators.lab.meters.memory import SavedForBackward
from calculators.lab.spec import Spec
from calculators.lab.splits import memory, tensor

SIZES = {
    "job": "tensor",
    "phase": "training",
    "layers": 2,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 128,
    "vocab_size": 32,
    "batch": 2,
    "tokens": 16,
}
TOKENS = 32


def spec_of(**changes: object) -> Spec:
    return Spec.parse({**SIZES, **changes})


def measured(spec: Spec) -> int:
    device = torch.device("cpu")
    model = transformer.whole_model(spec, device=device)
    meter = SavedForBackward([model])
    with meter.watching():
        logits = model(transformer.some_tokens(spec, device=device))
        transformer.language_loss(logits, transformer.some_tokens(spec, device=device, salt=1)).backward()
    return meter.bytes


@pytest.mark.parametrize("qkv", ["fused", "separate"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_whole_model_keeps_what_is_predicted_to_the_byte(dtype: str, qkv: str) -> None:
    spec = spec_of(dtype=dtype, qkv=qkv)
    kept = memory.stack(spec, layers=spec.layers, tokens=TOKENS)

    assert measured(spec) == kept.total
    assert kept.excess <= 0.05 * kept.formula


def test_a_layer_keeps_eight_hidden_states_and_twice_its_width_by_the_formula() -> None:
    layer = memory.layer(spec_of(), tokens=1)

    assert layer.formula == 4 * (8 * 64 + 2 * 128)  # Korthikanti 2022, table 2, without masks and scores
    assert layer.excess == 4 * (2 + 4)  # two norms' scales, four heads' softmax sums


def test_tensor_parallelism_cuts_what_lies_in_the_blocks_and_sequence_parallelism_the_rest() -> None:
    beside, inside = 4 * 4 * 64, 4 * (4 * 64 + 2 * 128)
    spec = spec_of()

    assert memory.layer(spec, tokens=1, tp=4).formula == beside + inside / 4
    assert memory.layer(spec, tokens=1, tp=4, by_tokens=True).formula == (beside + inside) / 4


def test_half_the_tokens_keep_half_whoever_has_the_others() -> None:
    spec = spec_of()
    whole, half = (memory.stack(spec, layers=2, tokens=tokens) for tokens in (TOKENS, TOKENS / 2))

    total_weight = 4
    assert half.formula == whole.formula / 2
    assert half.excess - total_weight == (whole.excess - total_weight) / 2


def test_two_stages_keep_together_what_the_whole_model_keeps() -> None:
    spec = spec_of()
    first = memory.stack(spec, layers=1, tokens=TOKENS, is_last=False)
    last = memory.stack(spec, layers=1, tokens=TOKENS, is_first=False)

    assert first + last == memory.stack(spec, layers=2, tokens=TOKENS)
    assert (first * 3).total == 3 * first.total


def test_two_stages_hold_together_the_parameters_of_the_whole_model() -> None:
    spec = spec_of()
    first = memory.parameters(spec, layers=1, is_last=False)
    last = memory.parameters(spec, layers=1, is_first=False)

    assert first + last == memory.parameters(spec, layers=2) == spec.parameters


def test_training_alone_is_predicted_to_hold_gradients() -> None:
    assert list(tensor.memory(spec_of(phase="decode"))) == []
    assert {p.detail for p in tensor.memory(spec_of())} == {
        memory.WEIGHTS,
        memory.GRADIENTS,
        memory.OPTIMIZER,
        memory.SAVED,
    }
