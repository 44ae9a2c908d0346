"""The pieces of a lesson that other apps draw: questions, calculators, split maps, experiments, schedules."""

from collections.abc import Callable

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from calculators.inline import inline_calculator, inline_split_map
from calculators.lab.guided import GUIDED
from calculators.lab.spec import experiment
from quizzes.inline import inline_check
from tutor.htmx import HtmxHttpRequest
from tutor.lessons.markup import Piece
from tutor.lessons.schedule import Schedule, forward_schedule


def render_piece(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    """The HTML of `piece` for this reader."""
    render = _RENDERERS[piece.kind]
    if piece.kind == "check" or request.GET:
        return render(piece, request)
    # With the lesson's own sizes a piece looks the same to everybody, and drawing it is half of a page's time.
    key = (request.path, piece.kind, piece.name, *sorted(piece.params.items()))
    if key not in _DRAWN:
        _DRAWN[key] = render(piece, request)
    return _DRAWN[key]


def schedule_of(piece: Piece) -> Schedule:
    """The schedule that `::: schedule stages=… micro-batches=…` asks for. Raises ValueError."""
    if set(piece.params) != {"stages", "micro_batches"}:
        raise ValueError("Give exactly stages and micro-batches.")
    sizes = {}
    for name, text in piece.params.items():
        if not text.isdecimal():
            raise ValueError(f"{name.replace('_', '-')} is {text}, which is not a whole number.")
        sizes[name] = int(text)
    return forward_schedule(sizes["stages"], sizes["micro_batches"])


def _check(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    return inline_check(piece.name, request)


def _calculator(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    return inline_calculator(piece.name, piece.params, request)


def _split_map(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    return inline_split_map(piece.params, request)


def _schedule(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    return render_to_string("lessons/schedule.html", {"schedule": schedule_of(piece)})


def _experiment(piece: Piece, request: HtmxHttpRequest) -> SafeString:
    guided = GUIDED.get(piece.name)
    context = {"name": piece.name, "guided": guided, "spec": None if guided else experiment(piece.name)}
    return render_to_string("lessons/experiment.html", context, request=request)


_DRAWN: dict[tuple[object, ...], SafeString] = {}

_RENDERERS: dict[str, Callable[[Piece, HtmxHttpRequest], SafeString]] = {
    "check": _check,
    "calculator": _calculator,
    "split-map": _split_map,
    "schedule": _schedule,
    "experiment": _experiment,
}
