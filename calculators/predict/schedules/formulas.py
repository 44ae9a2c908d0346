"""The formulas of one case as TeX: in symbols, and with its numbers in their places."""

from __future__ import annotations

from calculators.predict.formulas import Formula, legend_of, tex_short
from calculators.predict.schedules.closed import bubble_seconds, ideal_seconds, peak_in_flight
from calculators.predict.schedules.kinds import Schedule, chunks_of, kind_of

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_WORK = "(T_F+T_B+T_W)"
_LEGEND = {
    "p": "stages",
    "m": "micro-batches",
    "v": "chunks on each stage",
    "T_F": "forward of one micro-batch in one stage",
    "T_B": "gradient of the stage’s input",
    "T_W": "gradient of its weights",
    "s": "one message",
}


def formulas(
    schedule: Schedule | str,
    *,
    stages: int,
    micro_batches: int,
    chunks: int | None = None,
    forward: float = 1.0,
    backward_input: float = 1.0,
    backward_weight: float = 1.0,
    send: float = 0.0,
) -> tuple[Formula, ...]:
    """The bubble, both of its shares, and the activations of the fullest stage; arguments as in `bubble_seconds` [s].

    >>> formulas("1f1b", stages=4, micro_batches=8)[1].symbols
    '\\\\frac{\\\\text{bubble}}{m\\\\,(T_F+T_B+T_W)} = \\\\frac{p-1}{m}'
    """
    kind, v = kind_of(schedule).schedule, chunks_of(schedule, chunks)
    times = {"forward": forward, "backward_input": backward_input, "backward_weight": backward_weight}
    waited = bubble_seconds(
        kind, stages=stages, micro_batches=micro_batches, chunks=chunks, send=send, **times
    ).item()
    worked = ideal_seconds(micro_batches=micro_batches, **times).item()
    scale, unit = next((pair for pair in _UNITS if max(*times.values(), send) >= pair[0]), _UNITS[-1])
    given = {
        "p": tex_short(stages),
        "m": tex_short(micro_batches),
        "v": tex_short(v),
        "T_F": tex_short(forward / scale),
        "T_B": tex_short(backward_input / scale),
        "T_W": tex_short(backward_weight / scale),
        "s": tex_short(send / scale),
    }
    bubble, used = _bubble(kind, with_sends=send > 0)
    legend = legend_of(used, _LEGEND)
    ideal = rf"m\,{_WORK}"
    over, share = _SHORT.get(kind, ("", "")) if send == 0 else ("", "")

    def of(symbols: str) -> str:
        return _with_numbers(symbols, given)

    bubble_tex, ideal_tex = f"{tex_short(waited / scale)}", f"{tex_short(worked / scale)}"
    found = [
        Formula(
            gives="Bubble: how long a stage waits in one step",
            symbols=bubble,
            numbers=rf"{of(bubble)} = {bubble_tex}\text{{ {unit}}}",
            legend=legend,
        )
    ]
    if worked > 0:
        found += [
            Formula(
                gives="Idle over useful: bubble ÷ ideal time",
                symbols=rf"\frac{{\text{{bubble}}}}{{{ideal}}}{over}",
                numbers=rf"\frac{{{bubble_tex}}}{{{of(ideal)}}} = {_percent(waited / worked)}",
                legend=(),
            ),
            Formula(
                gives="Idle share: bubble ÷ whole time",
                symbols=rf"\frac{{\text{{bubble}}}}{{\text{{ideal}}+\text{{bubble}}}}{share}",
                numbers=rf"\frac{{{bubble_tex}}}{{{ideal_tex}+{bubble_tex}}} = {_percent(waited / (worked + waited))}",
                legend=(),
            ),
        ]
    held, used = _HELD[kind]
    most = peak_in_flight(kind, stages=stages, micro_batches=micro_batches, chunks=chunks).item()
    found.append(
        Formula(
            gives="Micro-batches whose activations the fullest stage holds",
            symbols=held,
            numbers=f"{of(held)} = {tex_short(most)}" if of(held) != tex_short(most) else tex_short(most),
            legend=legend_of((symbol for symbol in used if symbol not in dict(legend)), _LEGEND),
        )
    )
    return tuple(found)


def _bubble(schedule: Schedule, *, with_sends: bool) -> tuple[str, tuple[str, ...]]:
    """The formula of `closed.bubble_seconds` and its letters."""
    times = ("T_F", "T_B", "T_W")
    work = "(T_F+T_B+T_W+2s)" if with_sends else _WORK
    sent = ("s",) if with_sends else ()
    match schedule:
        case Schedule.NAIVE:
            return rf"m\,(p-1)\,{work}", ("m", "p", *times, *sent)
        case Schedule.GPIPE:
            return rf"(p-1)\,{work}", ("p", "m", *times, *sent)
        case Schedule.ONE_F_ONE_B if with_sends:
            messages = r"2s\,(p+m-2-\lceil\frac{m-1}{p}\rceil)"
            return rf"(p-1)\,{_WORK}+{messages}", ("p", "m", *times, "s")
        case Schedule.ONE_F_ONE_B:
            return rf"(p-1)\,{_WORK}", ("p", "m", *times)
        case Schedule.INTERLEAVED:
            return r"(p-1)\,\frac{T_F+T_B+T_W}{v}", ("p", "m", "v", *times)
        case Schedule.ZB_H1:
            return r"(p-1)\,\max(T_F+T_B-T_W,\,0)", ("p", "m", *times)
        case Schedule.ZB_H2:
            return r"(p-1)\,\max(T_F+T_B-2\,T_W,\,0)", ("p", "m", *times)
        case Schedule.ZBV:
            return r"(p-1)\,\max(T_B-T_W,\,0)", ("p", "m", *times)
        case Schedule.V_HALF:
            return rf"\frac{{1}}{{2}}\,(p-1)\,{_WORK}", ("p", "m", *times)
        case Schedule.V_MIN:
            return rf"\frac{{2}}{{3}}\,(p-1)\,{_WORK}", ("p", "m", *times)
        case Schedule.DUALPIPE:
            return r"(\frac{p}{2}-1)\,\max(T_F+2\,T_B-T_W,\,0)", ("p", "m", *times)
        case Schedule.DUALPIPE_V:
            return r"\frac{p-1}{2}\,\max(T_F+2\,T_B-T_W,\,0)", ("p", "m", *times)


_SHORT = {
    Schedule.NAIVE: (" = p-1", r" = \frac{p-1}{p}"),
    Schedule.GPIPE: (r" = \frac{p-1}{m}", r" = \frac{p-1}{m+p-1}"),
    Schedule.ONE_F_ONE_B: (r" = \frac{p-1}{m}", r" = \frac{p-1}{m+p-1}"),
    Schedule.INTERLEAVED: (r" = \frac{p-1}{v\,m}", r" = \frac{p-1}{v\,m+p-1}"),
}
"""What the shares come to where messages take no time and the times cancel."""

_HELD: dict[Schedule, tuple[str, tuple[str, ...]]] = {
    Schedule.NAIVE: (r"1", ()),
    Schedule.GPIPE: ("m", ("m",)),
    Schedule.ONE_F_ONE_B: (r"\min(m,\,p)", ("m", "p")),
    Schedule.INTERLEAVED: (r"\min(m,\,p+\frac{p-1}{v})", ("m", "p", "v")),
    Schedule.ZB_H1: (r"\min(m,\,p)", ("m", "p")),
    Schedule.ZB_H2: (r"\min(m,\,2\,p-1)", ("m", "p")),
    Schedule.ZBV: (r"\min(m,\,p)", ("m", "p")),
    Schedule.V_HALF: (r"\min(m,\,\frac{p}{2}+1)", ("m", "p")),
    Schedule.V_MIN: (r"\min(m,\,\lfloor\frac{p+4}{3}\rfloor)", ("m", "p")),
    Schedule.DUALPIPE: (r"\min(m,\,p+1)", ("m", "p")),
    Schedule.DUALPIPE_V: (r"\min(m,\,p+\frac{1}{2})", ("m", "p")),
}

_COMMANDS = (r"\frac", r"\max", r"\min", r"\lceil", r"\rceil", r"\lfloor", r"\rfloor")


def _with_numbers(symbols: str, given: dict[str, str]) -> str:
    """The letters of a formula replaced by numbers; a thin space between factors becomes a dot."""
    kept = symbols.replace(r",\,", "\x00")  # between the arguments of max and min it stays
    kept = kept.replace(r"\,", r" \cdot ")
    kept = kept.replace("2s", r"2 \cdot s")
    for number, command in enumerate((*_COMMANDS, r"\cdot")):
        kept = kept.replace(command, chr(1 + number))
    for symbol in ("T_F", "T_B", "T_W", "p", "m", "v", "s"):
        kept = kept.replace(symbol, given[symbol])
    for number, command in enumerate((*_COMMANDS, r"\cdot")):
        kept = kept.replace(chr(1 + number), command)
    return kept.replace("\x00", r",\,")


def _percent(share: float) -> str:
    return rf"{share * 100:.1f}\,\%"
