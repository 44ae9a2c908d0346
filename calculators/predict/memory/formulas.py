"""The memory of one case put into formulas: symbols, and the case's numbers in their places."""

from __future__ import annotations

import numpy as np

from calculators.predict.arrays import floats
from calculators.predict.formulas import Formula, tex, tex_bytes
from calculators.predict.memory.activations import (
    beside_the_matrices,
    bytes_per_token,
    first_stage_bytes_per_token,
    last_stage_bytes_per_token,
)
from calculators.predict.memory.kv_cache import layers_without_window
from calculators.predict.memory.levers import Case, Serving, Training
from calculators.predict.memory.states import RankParameters, largest_unit, rank_parameters
from calculators.predict.shapes import Layouts, Recompute
from calculators.predict.stages import fullest_stages, in_flight, layers_of_stage

_IN_FLIGHT = (
    ("b", "sequences in a micro-batch"),
    ("s", "tokens in each"),
    ("c", "context-parallel ranks"),
)


def memory_formulas(case: Case) -> tuple[Formula, ...]:
    """What the fullest device holds, part by part.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.shapes import Layout
    >>> case = Serving(shape=MODELS["llama-3.1-70b"].shape, layout=Layout(tp=8), tokens=512)
    >>> [formula.gives for formula in memory_formulas(case)]
    ['Weights', 'KV cache']
    """
    stage = _fullest(case)
    held = rank_parameters(case.shape, Layouts.of(case.layout), stage=stage)
    if isinstance(case, Serving):
        return _weights(case, held), _cache(case, stage)
    return tuple(
        formula
        for formula in (_states(case, held), _layer(case), _activations(case, stage), _working(case))
        if formula is not None
    )


def _fullest(case: Case) -> int:
    """The stage whose rank is the fullest: the one that has the weights of the answer, the first such."""
    layouts = Layouts.of(case.layout)
    tried = fullest_stages(case.shape, pp=case.layout.pp, vpp=case.layout.vpp)
    stages = sorted({int(stage.item()) for stage in tried})
    if len(stages) == 1:
        return stages[0]
    held = case.memory.weights.item()
    for stage in stages:
        parameters = rank_parameters(case.shape, layouts, stage=stage)
        if isinstance(case, Training):
            states = parameters.states(optimizer=case.optimizer, zero=floats(case.layout.zero))
            found = states.weights.item()
        else:
            found = parameters.total.item() * (case.weight_bytes or case.shape.bytes_per_element)
        if np.isclose(found, held, rtol=1e-12) and _has_activations(case, stage):
            return stage
    raise AssertionError("no stage has the weights of the fullest rank")


def _has_activations(case: Case, stage: int) -> bool:
    """Whether this stage's activations are those of the answer: two stages may weigh the same."""
    if isinstance(case, Serving):
        return True
    return bool(np.isclose(sum(_kept(case, stage)), case.memory.activations.item(), rtol=1e-9))


def _states(case: Training, held: RankParameters) -> Formula:
    optimizer, zero = case.optimizer, case.layout.zero
    sizes = (
        ("w", optimizer.weight_bytes, 3),
        ("g", optimizer.gradient_bytes, 2),
        ("o", optimizer.state_bytes, 1),
    )

    def share(name: str, count: str, replicas: str, size: float, divides: bool) -> tuple[str, str]:
        if divides:
            return rf"\frac{{{name}}}{{{count}}}", rf"\frac{{{tex(size)}}}{{{replicas}}}"
        return name, tex(size)

    groups = [(r"\Psi", "n", held.rest.item(), held.replicas.item())]
    if held.experts.item():
        groups.append((r"\Psi_E", "n_E", held.experts.item(), held.expert_replicas.item()))
    symbols, numbers, legend = [], [], []
    for psi, count, parameters, replicas in groups:
        parts = [share(name, count, tex(replicas), size, zero >= stage) for name, size, stage in sizes]
        symbols.append(rf"{psi} \left( {' + '.join(part[0] for part in parts)} \right)")
        numbers.append(rf"{tex(parameters)} \cdot \left( {' + '.join(part[1] for part in parts)} \right)")
        whose = (
            "of the routed experts" if count == "n_E" else "but the routed experts" if len(groups) > 1 else ""
        )
        legend.append((psi, f"parameters that this device answers for{', ' + whose if whose else ''}"))
        if zero:
            of = "of each expert" if count == "n_E" else "that share them out, dp · cp"
            legend.append((count, f"replicas {of}"))
    total = sum(getattr(case.memory, part).item() for part in ("weights", "gradients", "optimizer"))
    return Formula(
        gives="Weights, gradients and optimizer’s state",
        symbols=" + ".join(symbols),
        numbers=rf"{' + '.join(numbers)} = {tex_bytes(total)}",
        legend=(
            *legend,
            ("w", "bytes of a weight"),
            ("g", "of its gradient"),
            ("o", "of the optimizer’s state for it"),
        ),
    )


def _layer(case: Training) -> Formula | None:
    """Kept for a token in one layer, for the GPT block whose formula is printed everywhere."""
    shape, layout = case.shape, case.layout
    published = (
        not shape.gated
        and shape.experts is None
        and shape.latent is None
        and shape.kv_heads == shape.attention_heads
        and shape.attention_heads * shape.head_dim == shape.hidden_size
        and shape.ffn_width == 4 * shape.hidden_size
        and shape.bytes_per_element == 2
    )
    if not published:
        return None
    h, a, t, s = shape.hidden_size, shape.attention_heads, layout.tp, case.tokens
    if case.recompute == Recompute.FULL:
        symbols, numbers = (
            (r"\frac{2h}{t}", rf"\frac{{2 \cdot {tex(h)}}}{{{t}}}")
            if layout.sp
            else ("2h", rf"2 \cdot {tex(h)}")
        )
    else:
        beside = (r"\frac{10}{t}", rf"\frac{{10}}{{{t}}}") if layout.sp else ("10", "10")
        scores = case.recompute == Recompute.NONE
        symbols = (
            rf"h \left( {beside[0]} + \frac{{24}}{{t}}"
            + (r" + \frac{5\,a\,s}{h\,t}" if scores else "")
            + r" \right)"
        )
        numbers = (
            rf"{tex(h)} \cdot \left( {beside[1]} + \frac{{24}}{{{t}}}"
            + (rf" + \frac{{5 \cdot {a} \cdot {tex(s)}}}{{{tex(h)} \cdot {t}}}" if scores else "")
            + r" \right)"
        )
    legend = [("h", "hidden size"), ("t", "tensor-parallel ranks")]
    if case.recompute == Recompute.NONE:
        legend += [("a", "attention heads"), ("s", "tokens in a sequence")]
    return Formula(
        gives="Kept for each token in one layer",
        symbols=symbols,
        numbers=f"{numbers} = {tex_bytes(_per_token(case, sparse=False))}",
        legend=tuple(legend),
    )


def _activations(case: Training, stage: int) -> Formula:
    shape, layout = case.shape, case.layout
    flying = _flying(case, stage)
    layers = layers_of_stage(shape, stage, pp=layout.pp, vpp=layout.vpp)
    kinds = [
        (count.item(), _per_token(case, sparse=sparse), "_s" if sparse and shape.dense_layers else "")
        for count, sparse in zip(layers, (False, True), strict=True)
        if count.item()
    ]
    ends = _end_terms(case, stage)
    body_symbols = " + ".join(rf"l{mark} \cdot k{mark}" for _, _, mark in kinds)
    body_numbers = " + ".join(rf"{tex(count)} \cdot {tex(kept)}" for count, kept, _ in kinds)
    if ends[0]:
        body_symbols, body_numbers = f"{body_symbols} + k_e", f"{body_numbers} + {tex(ends[0])}"
    if len(kinds) > 1 or ends[0]:
        body_symbols, body_numbers = (rf"\left( {body} \right)" for body in (body_symbols, body_numbers))
    symbols, numbers = rf"f \cdot {body_symbols}", rf"{tex(flying)} \cdot {body_numbers}"
    if ends[1]:
        symbols, numbers = rf"\left( {symbols} + k_o \right)", rf"\left( {numbers} + {tex(ends[1])} \right)"
    legend = [*_IN_FLIGHT, ("f", "micro-batches in flight on this stage")]
    for _, _, mark in kinds:
        which = " with experts" if mark else " without experts" if len(kinds) > 1 else ""
        legend += [
            (f"l{mark}", f"layers of this stage{which}"),
            (f"k{mark}", "bytes kept for a token in one of them"),
        ]
    if ends[0]:
        legend.append(("k_e", "the mask behind the embedding"))
    if ends[1]:
        legend.append(("k_o", "the last norm and the logits, of one micro-batch"))
    return Formula(
        gives="Activations",
        symbols=rf"b \cdot \frac{{s}}{{c}} \cdot {symbols}",
        numbers=rf"{case.micro_batch} \cdot \frac{{{tex(case.tokens)}}}{{{layout.cp}}} \cdot {numbers} = "
        + tex_bytes(case.memory.activations.item()),
        legend=tuple(legend),
    )


def _working(case: Training) -> Formula | None:
    """What ZeRO-3 gathers, or what full recomputation holds of the layer at work; both are told where both are."""
    total = case.memory.working.item()
    if not total:
        return None
    layout, optimizer = case.layout, case.optimizer
    terms = []
    if layout.zero >= 3 and layout.dp * layout.cp > 1:
        unit = largest_unit(case.shape, Layouts.of(layout)).item()
        both = optimizer.weight_bytes + optimizer.gradient_bytes
        terms.append((r"\left( w + g \right) \cdot \Psi_l", rf"{tex(both)} \cdot {tex(unit)}"))
    legend = [
        (r"\Psi_l", "parameters of the largest layer, gathered whole with its gradient"),
        ("w", "bytes of a weight"),
        ("g", "of its gradient"),
    ] * bool(terms)
    if case.recompute == Recompute.FULL:
        kinds = [
            sparse
            for sparse, has in ((False, case.shape.dense_layers), (True, case.shape.sparse_layers))
            if has
        ]
        kept = max(_per_token(case, sparse=sparse, mode=Recompute.SELECTIVE) for sparse in kinds)
        here = rf"{case.micro_batch} \cdot \frac{{{tex(case.tokens)}}}{{{layout.cp}}}"
        terms.append((r"b \cdot \frac{s}{c} \cdot k_l", rf"{here} \cdot {tex(kept)}"))
        legend += [*_IN_FLIGHT, ("k_l", "bytes of a token in the layer that is computed again")]
    return Formula(
        gives="Working memory",
        symbols=" + ".join(term[0] for term in terms),
        numbers=f"{' + '.join(term[1] for term in terms)} = {tex_bytes(total)}",
        legend=tuple(legend),
    )


def _weights(case: Serving, held: RankParameters) -> Formula:
    width = case.weight_bytes or case.shape.bytes_per_element
    return Formula(
        gives="Weights",
        symbols=r"\Psi \cdot w",
        numbers=rf"{tex(held.total.item())} \cdot {tex(width)} = {tex_bytes(case.memory.weights.item())}",
        legend=((r"\Psi", "parameters that this device holds"), ("w", "bytes of a weight")),
    )


def _cache(case: Serving, stage: int) -> Formula:
    shape, layout = case.shape, case.layout
    dense, sparse = layers_of_stage(shape, stage, pp=layout.pp)
    layers = (dense + sparse).item()
    legend: list[tuple[str, str]]
    if shape.latent:
        of_layer = r"\left( d_c + d_r \right) \cdot e"
        its_numbers = (
            rf"\left( {shape.latent.kv_rank} + {shape.latent.rope_dim} \right) \cdot {tex(case.kv_bytes)}"
        )
        legend = [("d_c", "width of the cached vector"), ("d_r", "width of its rotary part")]
    else:
        of_layer = r"\frac{a}{t} \cdot d \cdot e"
        ranks = min(layout.tp, shape.kv_heads)
        its_numbers = (
            rf"\frac{{{shape.kv_heads}}}{{{ranks}}} \cdot {shape.head_dim} \cdot {tex(case.kv_bytes)}"
        )
        legend = [
            ("a", "key-value heads"),
            ("t", "tensor-parallel ranks, at most as many as these heads"),
            ("d", "width of a head"),
        ]
    twice = "" if shape.latent else r"2 \cdot "
    total = tex_bytes(case.memory.kv_cache.item())
    legend = [("l", "layers of this stage"), *legend, ("e", "bytes of a cached element"), ("b", "sequences")]
    if shape.window is None:
        return Formula(
            gives="KV cache",
            symbols=rf"{twice}l \cdot {of_layer} \cdot b \cdot s",
            numbers=rf"{twice}{tex(layers)} \cdot {its_numbers} \cdot {case.batch} \cdot {tex(case.tokens)} = {total}",
            legend=(*legend, ("s", "tokens of each")),
        )
    whole = layers_without_window(shape, floats(layers), pp=layout.pp).item()
    kept = min(case.tokens, shape.window.tokens)
    legend[0] = ("l_w", "layers of this stage that look back a window only")
    return Formula(
        gives="KV cache",
        symbols=rf"{twice}{of_layer} \cdot b \cdot \left( l \cdot s + l_w \cdot w \right)",
        numbers=rf"{twice}{its_numbers} \cdot {case.batch} \cdot \left( {tex(whole)} \cdot {tex(case.tokens)} + "
        rf"{tex(layers - whole)} \cdot {tex(kept)} \right) = {total}",
        legend=(
            ("l", "layers that look at everything"),
            *legend,
            ("s", "tokens of each"),
            ("w", "tokens in the window"),
        ),
    )


def _flying(case: Training, stage: int) -> float:
    layout = case.layout
    return in_flight(stage, pp=layout.pp, vpp=layout.vpp, micro_batches=case.micro_batches).item()


def _per_token(case: Training, *, sparse: bool, mode: Recompute | None = None) -> float:
    layout = case.layout
    return bytes_per_token(
        case.shape,
        keys=floats(case.tokens),
        tp=floats(layout.tp),
        sp=floats(layout.sp),
        etp=floats(layout.etp),
        recompute=floats(int(case.recompute if mode is None else mode)),
        sparse=sparse,
    ).item()


def _end_terms(case: Training, stage: int) -> tuple[float, float]:
    """Bytes for each token at the embedding and at the output, where this stage has them."""
    layout = case.layout
    tp = floats(layout.tp)
    beside = beside_the_matrices(tp, floats(layout.sp))
    embedding = first_stage_bytes_per_token(case.shape, beside=beside).item() if stage == 0 else 0.0
    is_last = stage == layout.pp - 1
    output = last_stage_bytes_per_token(case.shape, tp=tp, beside=beside).item() if is_last else 0.0
    return embedding, output


def _kept(case: Training, stage: int) -> tuple[float, float]:
    """Activations of this stage: of its layers and embedding in flight, and of the output."""
    layout = case.layout
    dense, sparse = layers_of_stage(case.shape, stage, pp=layout.pp, vpp=layout.vpp)
    here = case.micro_batch * case.tokens / layout.cp
    embedding, output = _end_terms(case, stage)
    body = dense.item() * _per_token(case, sparse=False)
    if sparse.item():
        body += sparse.item() * _per_token(case, sparse=True)
    return (body + embedding) * _flying(case, stage) * here, output * here
