"""The memory meter on modules small enough to count by hand."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from calculators.lab.jobs.transformer import Norm, language_loss
from calculators.lab.meters import memory


def saved_by(*modules: nn.Module, given: torch.Tensor) -> int:
    meter = memory.SavedForBackward(modules)
    with meter.watching():
        x = given
        for module in modules:
            x = module(x)
        x.sum().backward()
    return meter.bytes


def test_a_linear_keeps_its_input_and_its_weight_is_not_counted() -> None:
    assert saved_by(nn.Linear(16, 8, bias=False), given=torch.randn(3, 16)) == 3 * 16 * 4


def test_a_gelu_keeps_its_input_and_the_next_matrix_what_it_gives() -> None:
    modules = nn.Linear(16, 32, bias=False), nn.GELU(), nn.Linear(32, 16, bias=False)

    assert saved_by(*modules, given=torch.randn(3, 16)) == 3 * (16 + 32 + 32) * 4


@pytest.mark.parametrize(("kind", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_a_norm_keeps_its_input_and_one_float32_a_token(kind: torch.dtype, size: int) -> None:
    given = torch.randn(2, 3, 16, dtype=kind, requires_grad=True)

    assert saved_by(Norm(16).to(kind), given=given) == 2 * 3 * (16 * size + 4)


def test_the_lab_s_norm_and_its_gradients_are_those_of_torch() -> None:
    ours, torchs = Norm(16).double(), nn.RMSNorm(16, eps=torch.finfo(torch.float64).eps).double()
    weight = torch.randn(16, dtype=torch.float64)
    for norm in (ours, torchs):
        norm.weight.data.copy_(weight)
    x, y = (torch.randn(2, 3, 16, dtype=torch.float64, generator=torch.manual_seed(3)) for _ in range(2))
    inputs = x.clone().requires_grad_(), x.clone().requires_grad_()

    for norm, given in zip((ours, torchs), inputs, strict=True):
        (norm(given) * y).sum().backward()

    # float32 inside: what it gives is within that type's rounding
    torch.testing.assert_close(ours(x), torchs(x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.weight.grad, torchs.weight.grad, rtol=1e-5, atol=1e-6)


def test_attention_keeps_queries_keys_values_output_and_a_number_for_each_row_and_no_scores() -> None:
    batch, heads, tokens, width = 2, 3, 32, 8
    together = torch.randn(batch, tokens, heads, 3, width, requires_grad=True)
    meter = memory.SavedForBackward([])

    with meter.watching():
        q, k, v = (together * 1).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed.transpose(1, 2).flatten(2).sum().backward()

    rows = batch * heads * tokens
    assert meter.bytes == rows * (4 * width + 1) * 4


def test_a_loss_keeps_the_logits_in_float32_once_and_the_targets() -> None:
    logits = torch.randn(2, 5, 11, dtype=torch.bfloat16, requires_grad=True)
    meter = memory.SavedForBackward([])

    with meter.watching():
        language_loss(logits, torch.zeros(2, 5, dtype=torch.int64)).backward()

    total_weight = 4
    assert meter.bytes == 10 * 11 * 4 + 10 * 8 + total_weight


def test_a_view_keeps_all_of_the_tensor_that_it_is_a_part_of() -> None:
    meter = memory.SavedForBackward([])
    scale = torch.tensor(2.0, requires_grad=True)

    with meter.watching():
        ((torch.ones(8, 16) * 3)[0] * scale).sum().backward()

    assert meter.bytes == 8 * 16 * 4


def test_what_is_kept_twice_is_counted_once() -> None:
    given = torch.randn(8, requires_grad=True)
    meter = memory.SavedForBackward([])

    with meter.watching():
        (given.sin() + given.cos() + given.view(2, 4).exp().flatten()).sum().backward()

    assert meter.bytes == 2 * 8 * 4  # the input of two, and what exp gave


def test_micro_batches_that_go_back_one_by_one_are_not_added_up() -> None:
    linear, meters = nn.Linear(16, 8, bias=False), {}
    for together in (False, True):
        meter = meters[together] = memory.SavedForBackward([linear])
        with meter.watching():
            losses = []
            for _ in range(4):
                losses.append(linear(torch.randn(3, 16)).sum())
                if not together:
                    losses.pop().backward()
            for loss in losses:
                loss.backward()

    assert (meters[False].bytes, meters[True].bytes) == (3 * 16 * 4, 4 * 3 * 16 * 4)


def test_watching_keeps_no_tensor_longer_than_autograd_does() -> None:
    linear = nn.Linear(16, 8, bias=False)
    meter = memory.SavedForBackward([linear])

    with meter.watching():
        given = torch.randn(3, 16)
        storage = StorageWeakRef(given.untyped_storage())
        loss = linear(given).sum()
        del given
        kept = not storage.expired()
        loss.backward()
        let_go = storage.expired()

    assert (kept, let_go) == (True, True)


def test_weights_gradients_and_optimizer_state_are_counted_by_their_tensors() -> None:
    linear = nn.Linear(16, 8)
    optimizer = torch.optim.Adam(linear.parameters())
    assert memory.gradients([linear]) == 0
    assert memory.optimizer_state(optimizer) == 0

    linear(torch.randn(3, 16)).sum().backward()
    optimizer.step()

    parameters = (16 * 8 + 8) * 4
    assert memory.weights([linear]) == memory.gradients([linear]) == parameters
    assert memory.optimizer_state(optimizer) == 2 * parameters
    assert memory.weights([linear, linear]) == parameters
