"""A config.json that a reader pasted or uploaded: read, and led on to the page *Model* with its code in the address."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_POST

from calculators.fields import model_key
from calculators.pages.model import MODEL
from calculators.predict.models.catalogue import preset_of
from calculators.predict.models.configs import LARGEST_BYTES, ConfigError, read_config
from calculators.predict.shapes import ModelShape
from calculators.workbench import show
from tutor.htmx import HtmxHttpRequest

MOST_POSTED_BYTES = 4 * LARGEST_BYTES
"""A whole request; what is larger is refused before it is read. Percent signs make a text three times as large."""


@dataclass(frozen=True, kw_only=True)
class Pasted:
    """What was given, to be shown again, and why it could not be read."""

    text: str = ""
    name: str = ""
    problems: tuple[str, ...] = ()


@csrf_exempt  # the token lies in the body, which has to be small enough first; `_read` asks for it
@require_POST
def read_model(request: HtmxHttpRequest) -> HttpResponse:
    """Read a configuration. What cannot be read stays on the page, with a sentence for each reason."""
    size = int(request.META.get("CONTENT_LENGTH") or 0)
    if size > MOST_POSTED_BYTES:
        return _refused(request, Pasted(problems=(_too_large(size),)))
    return _read(request)


@csrf_protect
def _read(request: HtmxHttpRequest) -> HttpResponse:
    text, name = _given(request), request.POST.get("name", "")
    both = bool(request.POST.get("text", "").strip()) and "file" in request.FILES
    try:
        if both:
            raise ConfigError(["A text was pasted and a file was chosen as well: give one of them."])
        shape = read_config(text, name)
    except ConfigError as error:
        return _refused(request, Pasted(text=_again(text), name=name, problems=error.problems))
    return redirect(MODEL.at(_query(shape)))


def _given(request: HttpRequest) -> str | bytes:
    """The file where one was chosen, else the text; of either no more than is needed to call it too large."""
    pasted = request.POST.get("text", "")
    file = request.FILES.get("file")
    return pasted if file is None or pasted.strip() else file.read(LARGEST_BYTES + 1)


def _query(shape: ModelShape) -> str:
    """The address of a model: by its key where the catalogue has these very sizes."""
    preset = preset_of(shape)
    key = preset.key if preset else model_key(shape)
    return "" if key == MODEL.form.DEFAULTS["model"] else urlencode({"model": key})


def _refused(request: HtmxHttpRequest, pasted: Pasted) -> HttpResponse:
    return show(request, MODEL, pasted=pasted)


def _again(text: str | bytes) -> str:
    """The text as it was given, or that of the file; nothing of what is no text."""
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""


def _too_large(size: int) -> str:
    return (
        f"{size:,} bytes were sent, but a config.json takes a few thousand and this page reads {LARGEST_BYTES:,} at "
        "most: give the config.json itself, not the weights or the tokenizer."
    )
