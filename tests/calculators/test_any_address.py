"""Whatever an address or a form says to a calculator: an answer, or sentences that name what is wrong with it."""

import html
import json
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calculators.fields import Choice, Decimal, ModelField, WholeNumber
from calculators.pages import CALCULATORS
from calculators.pages.model import MODEL
from calculators.pages.pipeline import PIPELINE
from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.codes import code_of
from calculators.predict.models.configs import LARGEST_BYTES
from tests.calculators.reading import words

READ = reverse("calculators:read-model")
HOSTILE = [
    *("", " ", "0", "-1", "1.5", "1e400", "1e-400", "nan", "inf", "-inf", "NaN", "Infinity", "0x10", "1_000"),
    *(
        "٣",
        "²",
        "½",
        "１２",
        "9" * 400,
        "0" * 400 + "8",
        "1" * 5_000,
        "+3",
        "1,00",
        "1e9",
        "--",
        "null",
        "None",
    ),
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'; DROP TABLE runs; --", "{{7*7}}"),
    *("{% debug %}", "../../etc/passwd", "a\x00b", "\ud7ff\u202e", "%00", "x" * 10_000, "h1.l1", "~", "[]"),
    "h4096.l32.a32.k8.d128.f14336.v128256.b2~~3Cscript~3E",
    "h1000000.l10000.a10000.k10000.d100000.f10000000.v100000000.b8",
    "h1.l1.a1.k1.d1.f1.v1.b1.e100000-100000-10000000-10000000-0~odd",
]
NEVER_SHOWN = re.compile(r"(?<![\w“])(nan|inf|infinity|Traceback)(?![\w”])")
FRAGMENT = {"HX-Request": "true", "HX-Target": "result"}


def numbers_of(page):
    return [(name, field) for name, field in page.form({}).fields.items() if hasattr(field, "low")]


def plausible(field):
    """Values that the field takes, its limits among them."""
    if isinstance(field, WholeNumber):
        few = st.integers(field.low, min(field.high, 64))
        return st.one_of(few, st.integers(field.low, field.high), st.just(field.high)).map(str)
    if isinstance(field, Decimal):
        return st.one_of(st.sampled_from([field.low, field.high]), st.floats(field.low, field.high)).map(str)
    if isinstance(field, ModelField):
        return st.sampled_from([*MODELS, *(code_of(model.shape) for model in MODELS.values())])
    return st.sampled_from(sorted(keys_of(field.choices)))


def keys_of(choices):
    for key, text in choices:
        yield from keys_of(text) if isinstance(text, list | tuple) else [str(key)]


@st.composite
def addresses(draw):
    """A calculator and a state of it: some fields hostile, some plausible, some keys of nobody."""
    page = draw(st.sampled_from(CALCULATORS))
    fields = page.form({}).fields
    said = {}
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=6, unique=True)):
        is_hostile = draw(st.integers(0, 3)) == 0
        hostile = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
        said[name] = draw(hostile if is_hostile else plausible(fields[name]))
    if draw(st.integers(0, 9)) == 0:
        said[draw(st.sampled_from(["__class__", "<script>", "a" * 3_000, "\x00", "form"]))] = "1"
    return page, said


def check_shown(response, page):
    """The whole contract of a page, whatever was asked of it."""
    assert response.status_code == 200
    content = response.content.decode()
    assert "<script>alert" not in content
    assert "<img src=x" not in content
    form = response.context["form"]
    if response.context["answer"] is not None:
        assert not NEVER_SHOWN.search(words(response))
        assert "NaN" not in content
        assert "Infinity" not in content
        return
    sentences = [str(error) for errors in form.errors.values() for error in errors]
    for name, errors in form.errors.items():
        for error in errors:
            assert name == "__all__" or str(form[name].label) in error, error
    if response.context["problem"]:
        sentences.append(response.context["problem"])
    assert sentences, "neither an answer nor a reason"
    for sentence in sentences:
        assert sentence.rstrip().endswith("."), sentence
        assert html.escape(sentence) in content, sentence
        assert "could not" not in sentence, sentence  # what Python says, not this site


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=addresses(), fragment=st.booleans())
def test_no_address_breaks_a_calculator(client, state, fragment):
    page, said = state

    response = client.get(page.address, said, headers=FRAGMENT if fragment else {})

    check_shown(response, page)
    assert ("<html" in response.content.decode()) is not fragment


def test_work_too_short_to_be_told_from_nothing_is_refused(client):
    times = {"forward": "0", "backward_input": "0", "backward_weight": "1e-275", "send": "100000"}

    response = client.get(PIPELINE.address, times)

    check_shown(response, PIPELINE)
    assert "take less than a nanosecond together" in words(response)


@pytest.mark.parametrize(
    ("page", "name"),
    [(page, name) for page in CALCULATORS for name, _ in numbers_of(page)],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_number_of_every_form_says_what_is_wrong_with_it(page, name):
    field = page.form({}).fields[name]
    low, high = (
        (f"{field.low:,}", f"{field.high:,}")
        if isinstance(field, WholeNumber)
        else (f"{field.low:g}", f"{field.high:g}")
    )
    kind = "a whole number" if isinstance(field, WholeNumber) else "a number"
    wanted = f"{kind} from {low} to {high}"

    def said(value):
        return page.form({name: value}).errors.get(name, [])

    for odd in ("many", "nan", "inf", "-inf", "1e999", "0x10", "1_0", "<b>", "٣"):
        assert said(odd) == [f"{field.label} is “{odd}”, but it must be {wanted}."]
    above = f"{field.high + 1:.0f}"
    below = f"{field.low - 1}" if field.low > 0 else "-1"
    if isinstance(field, WholeNumber):
        assert said(above) == [f"{field.label} is {above}, but this page stops at {high}."]
        if field.low > 0:
            assert said(below) == [f"{field.label} is {below}, but the least that works is {low}."]
        assert said("-1") == [f"{field.label} is “-1”, but it must be {wanted}."]
    else:
        for outside in (above, below):
            assert said(outside) == [f"{field.label} is {outside}, but this page takes {low} to {high}."]
    if field.instead:
        assert not any("is empty" in error for error in said("") if field.instead != "model")
    else:
        assert said("") == [f"{field.label} is empty. Give {wanted}."]
        assert said(" \t") == [f"{field.label} is empty. Give {wanted}."]


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (page, name)
        for page in CALCULATORS
        for name, field in page.form({}).fields.items()
        if isinstance(field, Choice | ModelField)
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_choice_of_every_form_names_those_there_are(page, name):
    field = page.form({}).fields[name]

    (error,) = page.form({name: "<i>perhaps</i>"}).errors[name]

    assert error.startswith(f"{field.label} is “<i>perhaps</i>”, but it must be one of “")
    assert error.endswith(".")
    for key in keys_of(field.choices):
        assert not key or f"“{key}”" in error


def test_a_hostile_number_is_escaped_where_it_is_repeated(client):
    for page in CALCULATORS:
        for name, field in numbers_of(page):
            response = client.get(page.address, {name: "<script>alert(1)</script>"}, headers=FRAGMENT)

            assert b"<script>alert" not in response.content
            assert f"{html.escape(field.label)} is “&lt;script&gt;alert(1)" in response.content.decode()


BODIES = [
    *(
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "0",
        '"',
        "nan",
        "{}",
        '{"model_type"',
        "{'model_type': 'llama'}",
        "[" * 50_000,
    ),
    *(
        '{"a":' * 9_000,
        "\x00",
        "<script>alert(1)</script>",
        "﻿",
        "\u202e{",
        "9" * 5_000,
        '{"hidden_size": 1e999}',
    ),
    '{"model_type": "<script>alert(1)</script>"}',
    '{"model_type": "llama", "hidden_size": "4096"}',
    '{"model_type": "llama", "hidden_size": NaN}',
    '{"model_type": "llama", "hidden_size": 4096, "hidden_size": 1}',
    "x" * (LARGEST_BYTES + 1),
]
GOOD = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
ANY_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(),
        st.sampled_from(HOSTILE),
        st.text(max_size=10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def check_refused_or_read(response):
    if response.status_code == 302:
        return
    assert response.status_code == 200
    content = response.content.decode()
    assert "<script>alert" not in content
    problems = response.context["pasted"].problems
    assert problems
    for problem in problems:
        assert problem.endswith("."), problem
        assert "Traceback" not in problem
        assert html.escape(problem) in content


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_hostile_configuration_is_refused_in_sentences(client, body):
    pasted = client.post(READ, {"text": body, "name": "<script>alert(1)</script>"})
    uploaded = client.post(
        READ, {"file": SimpleUploadedFile("config.json", body.encode("utf-8", "surrogatepass"))}
    )

    for response in (pasted, uploaded):
        assert response.status_code == 200
        check_refused_or_read(response)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(st.sampled_from([*GOOD, "rope_scaling", "num_experts", "head_dim"]), ANY_JSON),
    cut=st.integers(0, 400),
)
def test_a_configuration_with_anything_in_it_is_read_or_refused_in_sentences(client, changes, cut):
    text = json.dumps(GOOD | changes)

    response = client.post(READ, {"text": text[: len(text) - cut] if cut < 100 else text})

    check_refused_or_read(response)
    if response.status_code == 302:
        check_shown(client.get(response["Location"]), MODEL)


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe\x00", b"PK\x03\x04", b"\x1f\x8b" * 100, bytes(range(256)) * 40]
)
def test_a_file_that_is_no_text_is_refused_in_a_sentence(client, raw):
    response = client.post(READ, {"file": SimpleUploadedFile("config.json", raw)})

    check_refused_or_read(response)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"not a form", "text/plain"),
        (b"--x\r\nbroken", "multipart/form-data; boundary=x"),
        (b"broken", "multipart/form-data"),
        (b"%%%=%ff", "application/x-www-form-urlencoded"),
        (b"&".join(b"k%d=1" % n for n in range(5_000)), "application/x-www-form-urlencoded"),
    ],
)
def test_a_request_that_is_no_form_gets_a_page_and_no_traceback(client, body, kind):
    response = client.post(READ, body, content_type=kind)

    assert response.status_code in (200, 400)
    assert b"Traceback" not in response.content
