"""The stack of transformer layers that every job splits: attention and feed-forward, each column → row.

Tensor names end in their shape: B sequences, T tokens, H hidden, A heads of this rank, D elements of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calculators.lab.spec import Dtype, Qkv, Spec


class Norm(nn.Module):
    """Root-mean-square norm that keeps its input and one number a token, as the fused kernels of GPUs do.

    `nn.RMSNorm` is made of elementary operations on a CPU and would keep the normalised input as well.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x_BTH: Tensor) -> Tensor:
        normalised: Tensor = _RootMeanSquare.apply(x_BTH, self.weight)
        return normalised


class _RootMeanSquare(torch.autograd.Function):
    """x ÷ √(mean of x²) · weight, in float32 inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        gradient, normalised = gradients[0].float(), x.float() * scale
        of_weight = (gradient * normalised).flatten(0, -2).sum(0).to(weight.dtype)
        inner = gradient * weight
        along = (inner * normalised).mean(-1, keepdim=True)
        return ((inner - normalised * along) * scale).to(x.dtype), of_weight


class Attention(nn.Module):
    """Causal self-attention; `qkv` (or `q`, `k`, `v`) cuts by columns, `out` by rows.

    The fused matrix holds q, k and v of one head beside each other, so a slice of its columns is whole heads.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        hidden = spec.hidden_size
        self.head_dim = spec.head_dim
        self.is_fused = spec.qkv is Qkv.FUSED
        self.context = spec.context
        if self.is_fused:
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        else:
            self.q = nn.Linear(hidden, hidden, bias=False)
            self.k = nn.Linear(hidden, hidden, bias=False)
            self.v = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(self, x_BTH: Tensor, position: int | None = None) -> Tensor:
        """Attend among the tokens given or, when decoding, of the one token given to all before it."""
        q_BATD, k_BATD, v_BATD = self._heads(x_BTH)
        if position is not None:
            k_BATD, v_BATD = self._remember(k_BATD, v_BATD, position)
        mixed_BATD = F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD, is_causal=position is None)
        return self.out(mixed_BATD.transpose(1, 2).flatten(2))

    def _heads(self, x_BTH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.is_fused:
            together = self.qkv(x_BTH).unflatten(-1, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
            return together[0], together[1], together[2]
        q, k, v = (
            project(x_BTH).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        return q, k, v

    def _remember(self, k_BATD: Tensor, v_BATD: Tensor, position: int) -> tuple[Tensor, Tensor]:
        if self.cache is None:
            batch, heads, _, head_dim = k_BATD.shape
            # Tokens first: memory is only touched as far as tokens have come.
            room = (self.context, batch, heads, head_dim)
            self.cache = k_BATD.new_zeros(room), v_BATD.new_zeros(room)
        filled = min(position + 1, self.context)
        for kept_TBAD, new_BATD in zip(self.cache, (k_BATD, v_BATD), strict=True):
            kept_TBAD[position % self.context] = new_BATD[:, :, 0]
        k_TBAD, v_TBAD = self.cache
        return k_TBAD[:filled].permute(1, 2, 0, 3), v_TBAD[:filled].permute(1, 2, 0, 3)


class FeedForward(nn.Module):
    """Two matrices with a GELU between; `up` cuts by columns, `down` by rows."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.hidden_size, spec.ffn_width, bias=False)
        self.down = nn.Linear(spec.ffn_width, spec.hidden_size, bias=False)

    def forward(self, x_BTH: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTH)))


class Layer(nn.Module):
    """One transformer layer, normalised before each block."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.attention_norm = Norm(spec.hidden_size)
        self.attention = Attention(spec)
        self.feed_forward_norm = Norm(spec.hidden_size)
        self.feed_forward = FeedForward(spec)

    def forward(self, x_BTH: Tensor, position: int | None = None) -> Tensor:
        x_BTH = x_BTH + self.attention(self.attention_norm(x_BTH), position)
        return x_BTH + self.feed_forward(self.feed_forward_norm(x_BTH))


class Stack(nn.Module):
    """Layers `span` of the model, with the embedding if they are the first, the head if they are the last.

    The whole range makes the whole model. In decode every call is the next token, and the stack counts them
    itself; in prefill and training a call reads whole sequences.
    """

    def __init__(self, spec: Spec, span: range | None = None) -> None:
        super().__init__()
        span = range(spec.layers) if span is None else span
        self.is_first, self.is_last = span.start == 0, span.stop == spec.layers
        self.embedding = nn.Embedding(spec.vocab_size, spec.hidden_size) if self.is_first else None
        self.layers = nn.ModuleDict({str(number): Layer(spec) for number in span})
        self.norm = Norm(spec.hidden_size) if self.is_last else None
        self.head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False) if self.is_last else None
        self.decodes = spec.is_decode
        self.position = 0

    def forward(self, x: Tensor) -> Tensor:
        """Token ids (B, T) or hidden states (B, T, H) in; hidden states or logits (B, T, V) out."""
        position = self.position if self.decodes else None
        self.position += 1
        x = self.embedding(x) if self.embedding is not None else x
        for layer in self.layers.values():
            x = layer(x, position)
        return self.head(self.norm(x)) if self.head is not None and self.norm is not None else x

    def forget(self) -> None:
        """Start again from the first token."""
        self.position = 0
        for layer in self.layers.values():
            layer.attention.cache = None


def whole_model(spec: Spec, *, device: torch.device) -> Stack:
    """The unsharded model; the same spec gives every rank the same weights."""
    torch.manual_seed(spec.seed)
    return Stack(spec).to(device=device, dtype=getattr(torch, spec.dtype.value))


def copy_of(model: Stack, spec: Spec, span: range | None = None) -> Stack:
    """Layers `span` of `model` (None: all) as a stack of their own, with weights that start out the same."""
    with torch.device("meta"):
        stage = Stack(spec, span)
    mine = {name: value.clone() for name, value in model.state_dict().items() if name in stage.state_dict()}
    stage.load_state_dict(mine, assign=True)
    return stage


def some_tokens(spec: Spec, *, device: torch.device, salt: int = 0) -> Tensor:
    """Token ids (B, T) that every rank draws alike; T is 1 when decoding."""
    generator = torch.Generator().manual_seed(spec.seed + 1 + salt)
    shape = (spec.batch, spec.tokens_in_flight)
    return torch.randint(spec.vocab_size, shape, generator=generator).to(device)


def language_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean cross-entropy over all tokens, in float32."""
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())


def sample(logits_BTV: Tensor) -> Tensor:
    """The likeliest next token of every sequence, (B, 1): the same on every rank that has the logits."""
    return logits_BTV[:, -1:].argmax(dim=-1)


def relative_difference(got: Tensor, wanted: Tensor) -> float:
    """The largest difference of two tensors as a share of the largest wanted value."""
    scale = wanted.abs().max().float().clamp_min(torch.finfo(torch.float32).tiny)
    return float((got.float() - wanted.float()).abs().max() / scale)


def tolerance(spec: Spec) -> float:
    """How far a sharded result may lie from the unsharded one, as a share of the largest value.

    Sums in another order differ by rounding: some units in the last place, times the depth of the sums.
    """
    units = {Dtype.FLOAT32: 512, Dtype.BFLOAT16: 16}[spec.dtype]
    return units * torch.finfo(getattr(torch, spec.dtype.value)).eps
