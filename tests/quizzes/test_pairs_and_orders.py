"""Matches and orders: what is refused in a pack, how they are marked, and how they are answered on pages."""

import random
import re

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory

from quizzes.bank import import_pack
from quizzes.inline import inline_check
from quizzes.models import Response, Serving
from quizzes.packs.checking import check_pack
from quizzes.questions import (
    AnswerProblem,
    Match,
    Order,
    digest,
    draw,
    failed_tests,
    fair_draws,
    from_meaning,
    mark,
    rejection,
    shuffled,
)
from tests.quizzes.conftest import ROWS, post, served

QUESTIONS = (ROWS / "questions" / "rows.yaml").read_text()
HEADER = (ROWS / "pack.yaml").read_text()
RIGHT = ["wide:tp", "deep:pp", "tp:cp"]
KEY = ["receive", "forward", "send"]


@pytest.fixture(scope="module")
def contents():
    """The two questions of the pack, by id."""
    return {question.content.id: question.content for question in check_pack(ROWS).questions}


@pytest.fixture
def match(contents):
    return contents["which-split"]


@pytest.fixture
def order(contents):
    return contents["a-stage"]


def text(response):
    return response.content.decode()


# --- what a pack may say ---------------------------------------------------------------------------------


def test_the_pack_is_in_order(match, order):
    assert isinstance(match, Match)
    assert isinstance(order, Order)
    assert list(failed_tests(match)) == list(failed_tests(order)) == []


RIGHT_MATCH = '{match: {wide: tp, deep: pp, tp: cp}, credit: "1"}'
RIGHT_ORDER = '{order: [receive, forward, send], credit: "1"}'


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("      target: tp\n", "      target: ep\n", 13, "target ep of the item wide is not one of its targets"),
        ("      target: tp\n", "", 11, "The field items.target is missing"),
        ("{target: pp", "{target: ep", 16, "wrong target ep of the item wide is not one of its targets"),
        ("{target: pp", "{target: tp", 16, "wrong target tp of the item wide is its right one"),
        ("{target: pp", "{target: cp", 17, "the item wide names the wrong target cp twice"),
        (", feedback: FEEDBACK-DEEP-CP weights stay whole.", "", 22, "needs feedback or a misconception"),
        ("id: deep", "id: wide", 18, "the item id wide is used twice"),
        ("{id: pp", "{id: tp", 8, "the target id tp is used twice"),
        ("Pipeline *parallelism*", "tensor *parallelism*.", 4, "targets tp and pp read the same with n = 8"),
        ("Each layer fits, but *all of them* do not.", "the *prompt* has a million tokens", 4,
         "items deep and tp read the same"),
        ("misconception: splits-a-layer", "misconception: unheard-of", 16, "unheard-of is not declared"),
        ("needs {{ layer }}", "needs {{ height }}", 12, "{{ height }} is not known here"),
        ("tp: cp}, credit", "tp: tp}, credit", 27, "credit is 0.666667, the test expects 1"),
        (RIGHT_MATCH, "{match: {wide: zz}}", 27, "the answer is refused: This question has no match “zz”"),
        (RIGHT_MATCH, "{match: {zz: tp}}", 27, "the answer is refused: This question has no item “zz”"),
        (RIGHT_MATCH, "{match: {wide: tp}}", 27,
         "refused: Not matched yet: “Each layer fits, but all of them do not” and “The prompt has"),
        ("pp}, invalid", "pp, tp: cp}, invalid", 30, "should be refused, but gets credit 1"),
        ("id: forward", "id: send", 38, "the step id send is used twice"),
        ("It runs its *own* layers.", "It *sends* the activations on", 34,
         "steps forward and send read the same with n = 2"),
        ("before: send", "before: end", 40, "wrong: before names end, which is not a step"),
        ("after: receive", "after: start", 40, "wrong: after names start, which is not a step"),
        ("{before: send, after: receive", "{before: receive, after: send", 40,
         "receive before send is the right order; wrong: takes what is not"),
        ("after: receive", "after: send", 40, "the step send cannot stand before itself"),
        ("after: receive", "after: forward", 41, "send before forward stands in wrong: twice"),
        (", feedback: FEEDBACK-NOTHING there is nothing to send.", "", 40,
         "the wrong order send before receive needs feedback or a misconception"),
        ("[receive, forward, send]", "[send, forward, receive]", 44, "credit is 0, the test expects 1"),
        (RIGHT_ORDER, "{order: [receive, send]}", 44, "the answer is refused: An order has every step once"),
        (RIGHT_ORDER, "{order: [receive, zz]}", 44, "the answer is refused: This question has no step “zz”"),
        ("[send, forward], inv", "[receive, forward, send], inv", 47, "should be refused, but gets credit 1"),
        ('credit: "0", misconception: sends-first}\n    - {order', "misconception: x}\n    - {order", 45,
         "the misconception x is not declared"),
    ],
)  # fmt: skip
def test_a_defect_is_a_sentence_where_it_stands(findings, old, new, line, reason):
    assert old in QUESTIONS

    report = findings(QUESTIONS.replace(old, new, 1), header=HEADER)

    assert any(f"questions/basics.yaml:{line}: " in entry and reason in entry for entry in report), report


@pytest.mark.parametrize("field", ["items", "targets", "steps"])
@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (1, "{field} needs 2 entries at least and has 1."),
        (13, "{field} has 13 entries; the limit is 12."),
    ],
)
def test_there_are_two_to_twelve_of_each(findings, field, count, reason):
    parts = {
        "items": [f"{{id: i{n}, text: Item {n}, target: t0, feedback: f}}" for n in range(2)],
        "targets": [f"{{id: t{n}, text: Target {n}}}" for n in range(2)],
        "steps": [f"{{id: s{n}, text: Step {n}, feedback: f}}" for n in range(2)],
    }
    many = [parts[field][0].replace("0", str(n), 2) for n in range(count)]
    parts[field] = [entry.replace("target: t1", "target: t0") for entry in many]
    fields = ["steps"] if field == "steps" else ["items", "targets"]
    question = f"- id: q\n  type: {'order' if field == 'steps' else 'match'}\n  prompt: Which?\n"
    question += "".join(f"  {name}: [{', '.join(parts[name])}]\n" for name in fields)

    report = findings(question, header=HEADER)

    assert any(reason.format(field=field.capitalize()) in entry for entry in report), report


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (", feedback: FEEDBACK-LONG tokens are shared out.", "", "the item tp has no feedback of its own"),
        (", feedback: FEEDBACK-SEND one send a boundary.", "", "the step send has no feedback of its own"),
        ("text: It runs its *own* layers.", "text: 'It runs its [[own]]{cue=x} layers.'", "cues are lit in symptom"),
    ],
)  # fmt: skip
def test_a_doubt_is_a_warning(findings, old, new, reason):
    assert old in QUESTIONS

    report = findings(QUESTIONS.replace(old, new, 1), header=HEADER)

    assert any("warning: " in entry and reason in entry for entry in report), report


def test_no_cue_is_asked_of_them(findings):
    assert not [entry for entry in findings(QUESTIONS, header=HEADER) if "[cue]" in entry]


# --- drawing and marking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "credit", "belief"),
    [
        (RIGHT, 1, None),
        (["wide:pp", "deep:pp", "tp:cp"], 2 / 3, "splits-a-layer"),
        (["tp:pp", "deep:cp", "wide:cp"], 0, "sends-first"),
        (["wide:tp", "deep:cp", "tp:tp"], 1 / 3, None),
    ],
)
def test_a_match_is_worth_its_share_of_right_items(match, chosen, credit, belief):
    result = mark(match, {"n": "8"}, chosen=chosen)

    assert (result.credit, result.misconception) == (pytest.approx(credit), belief)
    assert result.right == (credit == 1)


@pytest.mark.parametrize(
    ("chosen", "credit", "belief", "feedback"),
    [
        (KEY, 1, None, ""),
        (["send", "receive", "forward"], 0, "sends-first", "FEEDBACK-NOTHING there is nothing to send."),
        (["receive", "send", "forward"], 0, "sends-first", "FEEDBACK-EARLY 4 stages wait for what it calculates."),
        (["forward", "receive", "send"], 0, None, ""),
    ],
)  # fmt: skip
def test_an_order_is_right_or_wrong_as_a_whole(order, chosen, credit, belief, feedback):
    result = mark(order, {"n": "4"}, chosen=chosen)

    assert (result.credit, result.misconception, result.feedback) == (credit, belief, feedback)


@pytest.mark.parametrize("slug", ["which-split", "a-stage"])
def test_the_stored_meaning_is_the_same_question(contents, slug):
    question = contents[slug]

    again = from_meaning(question.meaning(), slug=slug)

    assert digest(again.meaning()) == digest(question.meaning())
    assert "tests" not in question.meaning()
    for chosen in (RIGHT, KEY, ["wide:pp", "deep:pp", "tp:pp"], ["send", "receive", "forward"]):
        try:
            expected = mark(question, {"n": "8"}, chosen=chosen)
        except AnswerProblem:
            continue
        assert mark(again, {"n": "8"}, chosen=chosen) == expected


def test_a_thousand_shuffles_of_steps_never_show_the_right_order(order):
    rng = random.Random(7)

    shown = {tuple(shuffled(order, rng)) for _ in range(1000)}

    assert tuple(KEY) not in shown
    assert len(shown) == 5


def test_items_and_targets_are_shuffled_apart(match):
    rng = random.Random(7)

    shown = [shuffled(match, rng) for _ in range(1000)]

    assert {tuple(name.partition(":")[0] for name in names) for names in shown} == {
        ("item", "item", "item", "target", "target", "target")
    }
    assert len({tuple(names[:3]) for names in shown}) == len({tuple(names[3:]) for names in shown}) == 6


def test_a_draw_in_which_two_texts_read_the_same_is_not_shown(match):
    fields = match.model_dump(by_alias=True) | {"computed": {}, "tests": []}
    fields["targets"] = [
        {"id": "tp", "text": "{{ n }} GPUs"},
        {"id": "pp", "text": "8 GPUs"},
        fields["targets"][2],
    ]
    fields["items"][0]["text"] = "One"

    question = Match.model_validate(fields)

    assert "the targets tp and pp read the same" in rejection(question, {"n": "8"})
    assert list(fair_draws(question)) == [{"n": "16"}]
    assert {draw(question, random.Random(seed))["n"] for seed in range(50)} == {"16"}


# --- pages -----------------------------------------------------------------------------------------------


def selects(page):
    """The lists on a page: their label's text, and their options as (value, words, chosen)."""
    found = []
    for name, inner in re.findall(r'<select id="([^"]+)" name="choice".*?>(.*?)</select>', page, re.DOTALL):
        label = re.search(rf'<label for="{re.escape(name)}">(.*?)</label>', page, re.DOTALL)[1]
        options = re.findall(r'<option value="([^"]*)"( selected)?>([^<]*)</option>', inner)
        found.append((label, [(value, words, bool(chosen)) for value, chosen, words in options]))
    return found


@pytest.mark.django_db
def test_a_match_is_a_labelled_list_for_each_item(rows, signed_in):
    page = text(signed_in.get("/practice/rows/which-split/"))
    serving = Serving.objects.get()

    lists = selects(page)

    assert len(lists) == 3
    assert any("<em>all of them</em>" in label for label, _ in lists)
    for (_, options), item in zip(lists, serving.option_ids[:3], strict=True):
        targets = [f"{item[5:]}:{target[7:]}" for target in serving.option_ids[3:]]
        assert [value for value, _, _ in options] == ["", *targets]
        assert options[0] == ("", "choose…", False)
        assert "Pipeline parallelism" in [words for _, words, _ in options]
        assert not any(chosen for _, _, chosen in options)
    assert page.count("<fieldset") == 1
    assert " style=" not in page


@pytest.mark.django_db
def test_an_order_is_a_labelled_place_for_each_step(rows, signed_in):
    page = text(signed_in.get("/practice/rows/a-stage/"))
    shown = Serving.objects.get().option_ids

    lists = selects(page)

    assert shown != KEY
    assert [[value for value, _, _ in options] for _, options in lists] == [
        ["", f"{step}:1", f"{step}:2", f"{step}:3"] for step in shown
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("htmx", [False, True])
@pytest.mark.parametrize(
    ("slug", "choice", "sentence"),
    [
        ("which-split", [], "Not matched yet: “One layer needs"),
        ("which-split", ["", "", ""], "and “The prompt has a million tokens”. Choose a match for every item"),
        ("which-split", ["wide:tp", "", "tp:cp"], "Not matched yet: “Each layer fits, but all of them do not”. Choose"),
        ("which-split", [*RIGHT, "wide:pp"], "An item is matched twice"),
        ("which-split", ["<b>:tp"], "This question has no item “&lt;b&gt;”"),
        ("which-split", ["wide:zz"], "This question has no match “zz”"),
        ("a-stage", [], "Without a place yet: “"),
        ("a-stage", ["send:1", "", "receive:2"], "Without a place yet: “It runs its own layers”. Give every step one"),
        ("a-stage", ["send:1", "forward:2", "receive:2"], "In place 2 stand “"),
        ("a-stage", ["send:1", "forward:2", "receive:4"], "There is no place “4”. Places go from 1 to 3"),
        ("a-stage", ["send:1", "forward:2", "receive:²"], "There is no place “²”"),
        ("a-stage", ["send:1", "send:2", "receive:3"], "A step has two places"),
        ("a-stage", ["stop:1"], "This question has no step “stop”"),
        ("a-stage", KEY, "There is no place “”"),
    ],
)  # fmt: skip
def test_an_answer_that_leaves_something_open_is_asked_back(rows, signed_in, slug, choice, sentence, htmx):
    serving = served(signed_in, slug, pack="rows")

    back = post(signed_in, serving, htmx=htmx, choice=choice)

    assert back.status_code == 200
    assert sentence in text(back)
    assert str(serving.nonce) in text(back)
    assert not Response.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("slug", "choice", "open_rows"),
    [
        ("which-split", ["wide:pp", "", "tp:cp"], {"deep"}),
        ("a-stage", ["send:2", "forward:2", "receive:1"], {"send", "forward"}),
        ("a-stage", ["send:2", "", "receive:1"], {"forward"}),
    ],
)
def test_what_was_entered_is_kept_and_what_is_open_is_marked(rows, signed_in, slug, choice, open_rows):
    page = text(post(signed_in, served(signed_in, slug, pack="rows"), choice=choice))

    kept = {value for _, options in selects(page) for value, _, chosen in options if chosen}
    assert kept == set(filter(None, choice))
    problem = f"problem-rows-{slug}"
    marked = re.findall(r'id="row-rows-[a-z-]+?-(\w+)" name="choice"[^>]*aria-invalid="true"', page)
    assert set(marked) == open_rows
    assert page.count(f'aria-describedby="{problem}"') == len(open_rows)
    assert f'id="{problem}" role="alert"' in page
    assert page.count("autofocus") == 1


@pytest.mark.django_db
def test_a_match_is_stored_and_each_pair_explained(rows, signed_in):
    serving = served(signed_in, "which-split", pack="rows")
    n = serving.params["n"]

    answer = post(signed_in, serving, choice=["tp:cp", "wide:pp", "deep:cp"])
    page = text(signed_in.get(answer["Location"]))

    stored = Response.objects.get()
    assert stored.shown_option_ids == serving.option_ids
    items = [name[5:] for name in serving.option_ids if name.startswith("item:")]
    assert stored.chosen_option_ids == [
        {"tp": "tp:cp", "wide": "wide:pp", "deep": "deep:cp"}[i] for i in items
    ]
    assert stored.credit == pytest.approx(1 / 3)
    assert stored.misconception.slug == "splits-a-layer"
    assert stored.raw_answer_text == ""
    assert "Partly right: 33% of the credit." in page
    for feedback in (
        f"FEEDBACK-WIDE-PP a stage of {n} holds", "FEEDBACK-WIDE a slice", "FEEDBACK-DEEP-CP", "FEEDBACK-DEEP whole",
        "FEEDBACK-LONG", f"EXPLANATION-SPLIT ask which piece is too large for {n} GPUs", "BELIEF-REFUTATION",
    ):  # fmt: skip
        assert feedback in page
    assert "FEEDBACK-WIDE-CP" not in page
    assert page.count('class="is-wrong"') == 2
    assert page.count('class="is-right"') == 1
    assert page.count("BELIEF-LAYER") == 1  # in full, so not beside its pair too


@pytest.mark.django_db
def test_a_second_belief_is_named_beside_its_pair(write_pack, signed_in):
    pairs = QUESTIONS.replace(
        "{target: cp, feedback: FEEDBACK-DEEP-CP", "{target: cp, misconception: sends-first, feedback: X"
    )
    import_pack(check_pack(write_pack(pairs, header=HEADER)))

    page = text(
        post(
            signed_in,
            served(signed_in, "which-split", pack="rows"),
            htmx=True,
            choice=["tp:cp", "wide:pp", "deep:cp"],
        )
    )

    assert "The belief behind it: BELIEF-SENDS" in page
    assert page.count("BELIEF-LAYER") == 1


@pytest.mark.django_db
def test_an_order_is_stored_and_stands_beside_the_right_one(rows, signed_in):
    serving = served(signed_in, "a-stage", pack="rows")
    n = serving.params["n"]

    page = text(post(signed_in, serving, choice=["receive:2", "send:1", "forward:3"], htmx=True))

    stored = Response.objects.get()
    assert stored.shown_option_ids == serving.option_ids
    assert stored.chosen_option_ids == ["send", "receive", "forward"]
    assert (stored.credit, stored.misconception.slug) == (0, "sends-first")
    assert "Not this order." in page
    given, key = (
        re.findall(r"It (\w+)", part) for part in page.split("<h3>Your order")[1].split("<h3>The right order")
    )
    assert given == ["sends", "receives", "runs"]
    assert key[:3] == ["receives", "runs", "sends"]
    assert page.count("not here") == 3
    for feedback in (
        "FEEDBACK-RECEIVE", "FEEDBACK-FORWARD", "FEEDBACK-SEND", "FEEDBACK-NOTHING",
        f"FEEDBACK-EARLY {n} stages", "EXPLANATION-STAGE", "BELIEF-SENDS",
    ):  # fmt: skip
        assert feedback in page


@pytest.mark.django_db
def test_an_order_that_breaks_no_rule_is_said_to(rows, signed_in):
    serving = served(signed_in, "a-stage", pack="rows")

    page = text(post(signed_in, serving, choice=["forward:1", "receive:2", "send:3"], htmx=True))

    assert "None of the usual mix-ups" in page
    assert Response.objects.get().misconception is None
    assert page.count("in place") == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("slug", "choice"), [("which-split", RIGHT), ("a-stage", ["receive:1", "forward:2", "send:3"])]
)
def test_what_is_right_is_said_to_be(rows, signed_in, slug, choice):
    page = text(post(signed_in, served(signed_in, slug, pack="rows"), choice=choice, htmx=True))

    assert '<h2 class="verdict good" tabindex="-1" autofocus>Right.</h2>' in page
    assert "is-wrong" not in page
    assert "Your order" not in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("slug", "choice", "other"),
    [
        ("which-split", RIGHT, ["wide:pp", "deep:pp", "tp:cp"]),
        ("a-stage", ["receive:1", "forward:2", "send:3"], ["receive:2", "forward:1", "send:3"]),
        ("a-stage", ["receive:1", "forward:2", "send:3"], ["receive:2", "forward:2", "send:3"]),
    ],
)
def test_a_second_post_is_the_same_answer_or_a_conflict(rows, signed_in, slug, choice, other):
    serving = served(signed_in, slug, pack="rows")

    first, same, changed = (post(signed_in, serving, choice=sent) for sent in (choice, choice[::-1], other))

    assert (first.status_code, same.status_code, changed.status_code) == (303, 303, 409)
    assert Response.objects.get().credit == 1
    assert "You had already answered this question" in text(changed)


@pytest.mark.django_db
def test_an_expired_sign_in_keeps_what_was_entered(rows, signed_in, learner):
    serving = served(signed_in, "a-stage", pack="rows")
    signed_in.logout()

    post(signed_in, serving, choice=["send:3", "", "receive:1"])
    signed_in.force_login(learner)
    page = text(signed_in.get("/practice/rows/a-stage/?choice=send%3A3&choice=&choice=receive%3A1"))

    assert {v for _, options in selects(page) for v, _, chosen in options if chosen} == {
        "send:3",
        "receive:1",
    }


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ["which-split", "a-stage"])
def test_a_lesson_asks_and_explains_them_in_place(rows, learner, signed_in, slug):
    request = RequestFactory().get("/lessons/pipeline-parallelism/")
    request.user = learner
    target = f"check-rows-{slug}"

    html = inline_check(f"rows/{slug}", request)
    choice = RIGHT if slug == "which-split" else ["receive:1", "forward:2", "send:3"]
    back = text(post(signed_in, Serving.objects.get(), htmx=True, target=target, choice=choice[:2]))
    after = text(post(signed_in, Serving.objects.get(), htmx=True, target=target, choice=choice))

    assert f'<section id="{target}"' in html
    assert len(selects(html)) == 3
    assert "FEEDBACK" not in html + back
    assert back.lstrip().startswith(f'<section id="{target}"')
    assert 'role="alert"' in back
    assert "Right." in after


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ["which-split", "a-stage"])
def test_a_visitor_reads_them(rows, client, slug):
    request = RequestFactory().get("/lessons/pipeline-parallelism/")
    request.user = AnonymousUser()

    page = text(client.get(f"/practice/rows/{slug}/")) + inline_check(f"rows/{slug}", request)

    assert len(selects(page)) == 6
    assert not Serving.objects.exists()


@pytest.mark.django_db
def test_an_author_who_changes_a_pair_makes_a_revision(write_pack):
    import_pack(check_pack(write_pack(QUESTIONS, header=HEADER)))

    same = import_pack(check_pack(write_pack(QUESTIONS, header=HEADER)))
    report = import_pack(
        check_pack(write_pack(QUESTIONS.replace("a slice of each", "a part of each"), header=HEADER))
    )

    assert same.changes == 0
    assert report.changed == {"which-split": ["items"]}
