"""The page *Experts*: what each rank sends and receives when a router likes some experts better than others."""

import math
from dataclasses import dataclass

import numpy as np
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from calculators.exchange_trials import CalculatedCalls, exchange_trial
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.figures import axis, figure, level, predicted_bar
from calculators.lab.spec import Pattern
from calculators.predict.arrays import Floats
from calculators.predict.shapes import Experts, ModelShape
from calculators.predict.traffic.routing import RoutedLayer, skewed_layer
from calculators.predict.traffic.routing_formulas import routing_formulas
from calculators.python_calls import python_call
from calculators.units import both_bytes, counted, iec_bytes, percent, plain
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset, Row, Table, run_it

MOST_RANKS_DRAWN = 32
MOST_RANKS_IN_MAP = 16
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_WIDTHS = {"16": (2.0, 2.0), "8": (1.0, 2.0)}


class ExpertsForm(AddressForm):
    """A model, how it is spread, and what the router likes."""

    DEFAULTS = {  # noqa: RUF012
        "model": "mixtral-8x7b",
        "ranks": "8",
        "tokens": "4096",
        "skew": "0.5",
        "capacity": "",
        "width": "16",
        "copies": "expert",
    }

    model = ModelField()
    ranks = WholeNumber(label="Ranks", low=1, high=512, help_text="that share the experts equally")
    tokens = WholeNumber(label="Tokens", low=1, high=1_000_000, help_text="on each rank")
    skew = Decimal(
        label="Skew",
        low=0,
        high=8,
        help_text="0: all experts are wanted alike; 1: the second is wanted half as much as the first",
    )
    capacity = Decimal(
        label="Capacity factor",
        low=0.01,
        high=100,
        instead="no limit",
        help_text="places in an expert, as a multiple of a fair share; empty for no limit",
    )
    width = Choice(
        label="On the wire", choices=[("16", "16 bits both ways"), ("8", "8 bits out, 16 bits back")]
    )
    copies = Choice(
        label="Copies of a token",
        choices=[("expert", "one for each expert"), ("rank", "one for each rank that has some")],
    )


@dataclass(frozen=True, kw_only=True)
class ExpertsPage(Answer):
    """What the page says of one layer. `heat` is who sends how much to whom, empty where it does not fit a page."""

    headline: SafeString | str
    why: str
    numbers: Table
    heat: SafeString | str


def _answer(form: ExpertsForm) -> ExpertsPage:
    values = form.cleaned_data
    shape: ModelShape = values["model"]
    if shape.experts is None:
        raise ValueError(
            f"{shape.name} is dense: it has no experts to send tokens to. Choose a model with experts, such as "
            "Mixtral 8x7B."
        )
    experts = shape.experts
    out, back = _WIDTHS[values["width"]]
    asked = {
        "experts": experts.routed,
        "experts_per_token": experts.per_token,
        "hidden_size": shape.hidden_size,
        "ranks": values["ranks"],
        "tokens": values["tokens"],
        "skew": values["skew"],
        "copies": values["copies"],
        "dispatch_bytes_per_element": out,
        "combine_bytes_per_element": back,
        **({"capacity_factor": values["capacity"]} if values["capacity"] else {}),
    }
    layer = skewed_layer(**asked)
    return ExpertsPage(
        headline=_headline(layer),
        why=_why(layer, experts),
        numbers=_numbers(layer, shape),
        heat=_heat(layer),
        charts=(_chart(layer),),
        explains=lambda: routing_formulas(layer),
        python=python_call(skewed_layer, **asked),
        runs=run_it(
            exchange_trial(
                CalculatedCalls(
                    pattern=Pattern.EXPERTS,
                    call_bytes=values["tokens"]
                    * experts.per_token
                    * shape.hidden_size
                    * shape.bytes_per_element,
                    repeats=shape.sparse_layers,
                    ranks=values["ranks"],
                    skew=values["skew"],
                    row_bytes=shape.hidden_size * shape.bytes_per_element,
                )
            ),
            label="Run it for real: EP",
            family="ep",
            back=EXPERTS.at(form.address),
        ),
    )


def _headline(layer: RoutedLayer) -> SafeString | str:
    spread = layer.exchange.received_spread
    if layer.routed.ranks == 1:
        return "One rank has all the experts, so no token travels."
    return format_html(
        "In one layer’s dispatch a rank receives "
        '<strong class="num"><span class="swatch predicted"></span> {}</strong> on average and the busiest '
        "<strong>{}</strong>: <strong>{} times</strong> the mean.{}",
        iec_bytes(spread.mean),
        iec_bytes(spread.hottest),
        plain(round(spread.imbalance, 2)),
        format_html(" <strong>{}</strong> of all copies find no place.", _share(layer.routed.drop_rate))
        if layer.routed.dropped > 0.5
        else "",
    )


def _why(layer: RoutedLayer, experts: Experts) -> str:
    """What follows, and what to change."""
    imbalance, limit = layer.exchange.received_spread.imbalance, layer.routed.capacity
    if layer.routed.ranks == 1:
        return "Every token finds its experts at home. Give more ranks to see what they exchange."
    if imbalance <= 1.005 and limit is None:
        return (
            "The router spreads its tokens evenly, so every rank sends and receives the same. Raise the skew: the sum "
            "of all bytes stays, but they pile up where the wanted experts are."
        )
    if layer.routed.dropped > 0.5:
        return (
            f"An expert takes {plain(limit or 0)} tokens of each rank and drops the others. The limit bounds the "
            "exchange, and the tokens that are dropped go without that expert’s answer. A higher capacity factor drops "
            "fewer; a router that balances needs none."
        )
    if imbalance <= 1.5:
        return "The exchange ends when the busiest rank has got everything; the others wait for it."
    per_rank = experts.routed // layer.routed.ranks
    remedy = (
        "Place a copy of the hottest expert on a second rank, balance the router, or set a capacity factor."
        if per_rank == 1
        else f"Each rank has {per_rank} experts: put hot ones beside cold ones, copy the hottest, balance the router, "
        "or set a capacity factor."
    )
    return f"The exchange ends when the busiest rank has got everything; the others wait for it. {remedy}"


def _share(part: float) -> str:
    return percent(round(part, 4))


def _numbers(layer: RoutedLayer, shape: ModelShape) -> Table:
    exchange, routed = layer.exchange, layer.routed
    sent, received = exchange.sent_spread, exchange.received_spread
    dispatch, combine = float(exchange.dispatch.sum()), float(exchange.combine.sum())
    layers, load = shape.sparse_layers, routed.expert_spread
    rows: list[tuple[str, str]] = [
        ("A rank sends in the dispatch, on average", both_bytes(round(sent.mean))),
        ("The busiest rank receives", both_bytes(round(received.hottest))),
        ("Busiest over mean", plain(round(received.imbalance, 3))),
        ("All ranks send: dispatch", both_bytes(round(dispatch))),
        ("All ranks send: results back", both_bytes(round(combine))),
        (
            f"All {counted(layers, 'sparse layer')}, one pass forward",
            both_bytes(round(layers * (dispatch + combine))),
        ),
        ("The same in training, forward and backward", both_bytes(round(2 * layers * (dispatch + combine)))),
        ("Tokens that an expert gets, on average", plain(round(load.mean))),
        ("The hottest expert gets", plain(round(load.hottest))),
    ]
    if routed.capacity is not None:
        rows += [
            ("Places in an expert for one rank’s tokens", plain(routed.capacity)),
            ("Copies without a place", f"{plain(round(routed.dropped))}, {_share(routed.drop_rate)}"),
        ]
    return Table(
        name="numbers",
        caption="Predicted, for one layer and one pass unless the line says more.",
        heads=("", "Figure"),
        rows=tuple(Row(cells=row) for row in rows),
    )


def _chart(layer: RoutedLayer) -> Chart:
    """Bars of what each rank sends and receives, the busiest receivers where there are many."""
    dispatch = layer.exchange.dispatch
    sent, received = dispatch.sum(axis=1), dispatch.sum(axis=0)
    ranks = np.argsort(-received, kind="stable")[:MOST_RANKS_DRAWN]
    ranks = np.sort(ranks)
    names = [str(rank) for rank in ranks]
    computed = layer.routed.rank_loads
    spread = layer.exchange.received_spread
    size, unit = 1024.0 ** _unit(dispatch), _UNITS[_unit(dispatch)]
    mean = level(spread.mean / size, "")["shapes"]  # among the bars there is no room for its words
    few = (
        f"The {MOST_RANKS_DRAWN} of {layer.routed.ranks} ranks that receive most"
        if len(sent) > len(ranks)
        else "Each rank"
    )
    return Chart(
        name="ranks",
        figure=figure(
            [
                predicted_bar(
                    name,
                    names,
                    (values[ranks] / size).tolist(),
                    colour="ep",
                    says=[f"{_digits(v / size)} {unit}" for v in values[ranks]],
                    pattern=pattern,
                )
                for name, values, pattern in (("receives", received, ""), ("sends", sent, "/"))
            ],
            x=axis("rank") | {"type": "category", "showgrid": False},
            y=axis(f"{unit} in one dispatch") | {"rangemode": "tozero"},
            barmode="group",
            bargap=0.25,
            shapes=mean,
        ),
        caption=f"{few}, in one layer’s dispatch; the dashed line is the mean received. Results go back the other way, "
        "so who receives most now sends most then.",
        table=Table(
            name="ranks",
            caption="Copies computed, beside the same numbers.",
            heads=("Rank", f"Sends, {unit}", f"Receives, {unit}", "Of the mean", "Copies"),
            rows=tuple(
                Row(
                    cells=(
                        plain(int(rank)),
                        _digits(sent[rank] / size),
                        _digits(received[rank] / size),
                        plain(round(received[rank] / spread.mean, 2)) if spread.mean else "0",
                        plain(round(float(computed[rank]))),
                    ),
                    is_chosen=bool(rank == spread.index and spread.imbalance > 1.005),
                )
                for rank in ranks
            ),
        ),
    )


def _heat(layer: RoutedLayer) -> SafeString | str:
    """The dispatch from rank to rank, where it fits a page; a cell is shaded by its share of the largest."""
    table = layer.exchange.dispatch
    if not 1 < len(table) <= MOST_RANKS_IN_MAP:
        return ""
    rows, power = table.tolist(), _unit(table)
    most, size = float(table.max()), 1024.0**power
    cells = {
        value: f'<td class="num heat-{_shade(value, most)}">{_digits(value / size)}</td>'
        for row in rows
        for value in row
    }
    itself = '<td class="num self" aria-label="itself">·</td>'
    written = [
        f'<tr><th scope="row">{sender}</th>'
        + "".join(itself if sender == receiver else cells[value] for receiver, value in enumerate(row))
        + "</tr>"
        for sender, row in enumerate(rows)
    ]
    heads = [f'<th scope="col" class="num">to {receiver}</th>' for receiver in range(len(rows))]
    return format_html(
        '<table class="table matrix predicted family-ep" id="heat">'
        '<caption><span class="swatch predicted family-ep"></span> Predicted, in {}.</caption>'
        "<thead><tr><td></td>{}</tr></thead><tbody>{}</tbody></table>",
        _UNITS[power],
        mark_safe("".join(heads)),  # noqa: S308 numbers alone
        mark_safe("".join(written)),  # noqa: S308
    )


def _shade(value: float, most: float) -> int:
    """From 0 to 5, by the share of the largest."""
    return 1 + min(4, int(5 * value / most)) if value > 0 else 0


def _digits(value: float) -> str:
    """Three of them, or all that are before the point."""
    return plain(round(value) if value >= 100 else float(f"{value:.3g}"))


def _unit(table: Floats) -> int:
    """The power of 1024 in which the largest cell has at least one digit before the point."""
    most = float(table.max())
    return max(0, min(len(_UNITS) - 1, int(math.log(most, 1024)))) if most >= 1 else 0


EXPERTS = Calculator(
    name="experts",
    title="Experts",
    asks="What a router that likes some experts better does to the exchange: who receives how much, what is dropped, "
    "and how much longer it takes.",
    form=ExpertsForm,
    answer=_answer,
    presets=(
        Preset(label="Mixtral, a little uneven", query=""),
        Preset(label="Mixtral, balanced", query="skew=0"),
        Preset(label="Mixtral with a capacity", query="skew=1&capacity=1.25"),
        Preset(label="DeepSeek-V3 on 64", query="model=deepseek-v3&ranks=64&width=8&copies=rank"),
        Preset(label="Qwen3 235B on 16", query="model=qwen3-235b-a22b&ranks=16&skew=0.8"),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
    ),
)
