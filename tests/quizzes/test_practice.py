"""Practice over HTTP: choose, answer, see why, next; once, by the right person, and with nothing given away."""

import re

import pytest
from django.test import Client

from quizzes.models import Response, Serving
from tests.quizzes.conftest import post, served

pytestmark = pytest.mark.django_db

SECRETS = [
    "FEEDBACK-", "EXPLANATION-", "BELIEF-", "The pack explains this cue", "A boundary lies between", "<mark", "cue=",
    "tensor-decode", "calculate/traffic?layers", "credit", "misconception", "forgets-stages", "splits-a-layer",
    "sends-first", "the right order",
    'class="is-right', "your answer</span>",
]  # fmt: skip


def text(response):
    return response.content.decode()


def test_the_index_shows_packs_and_what_was_seen(tiny, signed_in, client):
    page = text(signed_in.get("/practice/"))

    assert "A tiny pack" in page
    assert re.search(r'<span class="num">0</span> of <span class="num">3</span> questions seen', page)


def test_an_empty_bank_says_how_to_fill_it(client, db):
    assert "packs import FOLDER" in text(client.get("/practice/"))


def test_a_question_is_asked_marked_and_explained(tiny, signed_in, learner):
    serving = served(signed_in)

    post(signed_in, serving, choice="opt-pp")
    page = text(signed_in.get(f"/practice/tiny/too-wide/answered/{serving.nonce}/"))

    assert "Not this one." in page
    for feedback in ("FEEDBACK-KEY", "FEEDBACK-PP", "FEEDBACK-NO ", "FEEDBACK-NONE"):
        assert feedback in page
    assert '<mark class="cue">One layer alone<sup class="cue-number">1</sup></mark>' in page
    assert "The pack explains this cue" in page
    assert "BELIEF-NAME" in page
    assert "BELIEF-REFUTATION" in page
    assert 'href="/lessons/pipeline-parallelism/#stages"' in page
    assert 'href="/runs/new?experiment=pipeline-decode"' in page
    assert 'href="/runs/new?experiment=tensor-decode"' in page
    assert 'href="/calculate/traffic?layers=2"' in page
    assert f"EXPLANATION-WIDE of {serving.params['layer']} GB" in page
    assert 'href="/practice/tiny/"' in page


def test_the_response_stores_all_that_is_needed_to_understand_it(tiny, signed_in, learner):
    serving = served(signed_in)

    post(signed_in, serving, choice="opt-pp", confidence="sure")

    stored = Response.objects.get()
    assert stored.revision == serving.revision
    assert stored.shown_option_ids == serving.option_ids
    assert (stored.chosen_option_ids, stored.params) == (["opt-pp"], serving.params)
    assert (stored.credit, stored.misconception.slug, stored.confidence) == (0, "splits-a-layer", "sure")
    assert (stored.first_attempt, stored.client_nonce, stored.learner) == (True, serving.nonce, learner)


def test_a_second_attempt_is_not_the_first(tiny, signed_in):
    post(signed_in, served(signed_in), choice="opt-no")
    post(signed_in, served(signed_in), choice="key-tp")

    assert list(Response.objects.order_by("pk").values_list("first_attempt", "credit")) == [
        (True, 0),
        (False, 1),
    ]


def test_htmx_gets_only_the_part_that_changes(tiny, signed_in):
    serving = served(signed_in)

    fragment = post(signed_in, serving, choice="key-tp", htmx=True)

    assert text(fragment).lstrip().startswith('<section id="question"')
    assert "<html" not in text(fragment)
    assert "Right." in text(fragment)
    assert "HX-Target" in fragment["Vary"]


def test_without_javascript_the_answer_leads_to_a_page_that_can_be_reloaded(tiny, signed_in):
    answer = post(signed_in, (serving := served(signed_in)), choice="key-tp")

    assert (answer.status_code, answer["Location"]) == (
        303,
        f"/practice/tiny/too-wide/answered/{serving.nonce}/",
    )
    assert "Right." in text(signed_in.get(answer["Location"]))


def test_a_number_is_stored_as_typed_and_explained(tiny, signed_in):
    serving = served(signed_in, "share")
    key = 16 * float(serving.params["p"]) / (float(serving.params["tp"]) * float(serving.params["pp"]))
    slip = key * float(serving.params["pp"])

    page = text(post(signed_in, serving, typed=f" {slip:.1f} GB".replace(".", ","), htmx=True))

    stored = Response.objects.get()
    assert stored.raw_answer_text == f" {slip:.1f} GB".replace(".", ",")
    assert (stored.parsed_value, stored.misconception.slug) == (slip, "forgets-stages")
    assert "FEEDBACK-STAGES" in page
    assert "EXPLANATION-SHARE" in page
    assert f"{key:g} GB" in page


def test_a_multiple_question_takes_several(tiny, signed_in):
    serving = served(signed_in, "which-send")

    page = text(post(signed_in, serving, choice=["key-a", "key-c"], htmx=True))

    assert "Right." in page
    assert set(Response.objects.get().chosen_option_ids) == {"key-a", "key-c"}


@pytest.mark.parametrize(
    ("slug", "data", "sentence"),
    [
        ("too-wide", {}, "Nothing is chosen yet"),
        ("too-wide", {"choice": "zz"}, "This question has no option “zz”"),
        ("too-wide", {"choice": ["key-tp", "opt-pp"]}, "takes one option"),
        ("share", {"typed": "3,145"}, "can be read two ways"),
        ("share", {"typed": "nan"}, "is not a number"),
        ("share", {"typed": "35 KB"}, "1,024 bytes"),
        ("share", {"typed": "<script>alert(1)</script>"}, "is not a number"),
        ("share", {"typed": "\x00"}, "Nothing was typed"),
        ("share", {"typed": "9" * 5000}, "characters long"),
    ],
)
@pytest.mark.parametrize("htmx", [False, True])
def test_an_answer_that_cannot_be_marked_comes_back_with_a_sentence(
    tiny, signed_in, slug, data, sentence, htmx
):
    serving = served(signed_in, slug)

    back = post(signed_in, serving, htmx=htmx, **data)

    assert back.status_code == 200
    assert sentence in text(back)
    assert "<script>alert" not in text(back)
    assert str(serving.nonce) in text(back)
    assert not Response.objects.exists()


def test_what_was_typed_comes_back_with_the_sentence(tiny, signed_in):
    assert 'value="3,145"' in text(post(signed_in, served(signed_in, "share"), typed="3,145"))


# --- once (E1, E2) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("htmx", [False, True])
def test_a_double_post_stores_one_response_and_shows_the_same(tiny, signed_in, htmx):
    serving = served(signed_in)

    first, second = (post(signed_in, serving, choice="opt-pp", htmx=htmx) for _ in range(2))

    assert Response.objects.count() == 1
    assert first.status_code == second.status_code
    assert first.headers.get("Location") == second.headers.get("Location")
    assert first.content == second.content


def test_a_second_tab_is_told_what_is_stored(tiny, signed_in):
    serving = served(signed_in)
    post(signed_in, serving, choice="opt-pp")

    other_tab = post(signed_in, serving, choice="key-tp")

    assert other_tab.status_code == 409
    assert "You had already answered this question" in text(other_tab)
    assert "Not this one." in text(other_tab)
    assert Response.objects.get().chosen_option_ids == ["opt-pp"]


def test_a_second_tab_with_htmx_is_told_in_place(tiny, signed_in):
    serving = served(signed_in)
    post(signed_in, serving, choice="opt-pp", htmx=True)

    other_tab = post(signed_in, serving, choice="key-tp", htmx=True)

    assert other_tab.status_code == 200  # htmx does not swap a 409 in
    assert "You had already answered this question" in text(other_tab)


@pytest.mark.parametrize("nonce", ["", "nonsense", "6f1b3c1e-0000-4000-8000-000000000000", "' OR 1=1 --"])
def test_a_stale_nonce_is_a_sentence_and_stores_nothing(tiny, signed_in, nonce):
    served(signed_in)

    answer = signed_in.post("/practice/tiny/too-wide/answer", {"nonce": nonce, "choice": "key-tp"})

    assert answer.status_code == 409
    assert "This form is out of date" in text(answer)
    assert not Response.objects.exists()


def test_another_learners_nonce_is_refused(tiny, signed_in, django_user_model):
    serving = served(signed_in)
    thief = Client()
    thief.force_login(django_user_model.objects.create_user("eve"))

    answer = post(thief, serving, choice="key-tp")
    page = thief.get(f"/practice/tiny/too-wide/answered/{serving.nonce}/")

    assert (answer.status_code, page.status_code) == (409, 404)
    assert "FEEDBACK" not in text(answer) + text(page)
    assert not Response.objects.exists()


# --- resume (E4) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", ["too-wide", "share"])
def test_opening_again_shows_identical_numbers_and_order(tiny, signed_in, slug, learner):
    first = served(signed_in, slug)
    elsewhere = Client()
    elsewhere.force_login(learner)

    again = [served(client, slug) for client in (signed_in, elsewhere, signed_in)]

    assert {(s.nonce, str(s.params), str(s.option_ids)) for s in again} == {
        (first.nonce, str(first.params), str(first.option_ids))
    }
    assert Serving.objects.count() == 1


def test_the_pack_resumes_the_question_left_open(tiny, signed_in):
    left_open = served(signed_in, "which-send")

    page = text(signed_in.get("/practice/tiny/"))

    assert str(left_open.nonce) in page


def test_the_pack_serves_unseen_questions_first_and_then_the_one_met_least(tiny, signed_in):
    met = []
    for _ in range(6):
        nonce = re.search(r'name="nonce" value="([^"]+)"', text(signed_in.get("/practice/tiny/")))[1]
        serving = Serving.objects.get(nonce=nonce)
        met.append(serving.question.slug)
        answer = {"typed": "1"} if serving.question.type == "numeric" else {"choice": serving.option_ids[0]}
        post(signed_in, serving, **answer)

    assert set(met[:3]) == {"too-wide", "share", "which-send"}
    assert met[3:] == met[:3]


def test_a_pinned_option_stays_last_on_the_page(tiny, signed_in):
    page = text(signed_in.get("/practice/tiny/too-wide/"))

    assert re.findall(r'name="choice" value="([^"]+)"', page)[-1] == "opt-none"


# --- nothing given away (E15) ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pack", "slug", "unclear"),
    [
        ("tiny", "", None),
        ("tiny", "too-wide", {}),
        ("tiny", "share", {"typed": "3,145"}),
        ("tiny", "which-send", {}),
        ("rows", "which-split", {"choice": ["wide:pp", "deep:pp"]}),
        ("rows", "a-stage", {"choice": ["send:1", "receive:2", "forward:2"]}),
    ],
)
@pytest.mark.parametrize("person", ["anonymous", "learner"])
@pytest.mark.parametrize("htmx", [False, True])
def test_no_page_before_the_answer_gives_it_away(
    tiny, rows, client, learner, pack, slug, unclear, person, htmx
):
    if person == "learner":
        client.force_login(learner)
    headers = {"HX-Request": "true", "HX-Target": "question"} if htmx else {}

    address = f"/practice/{pack}/{slug}/" if slug else f"/practice/{pack}/"
    pages = [client.get(place, headers=headers) for place in ("/practice/", address)]
    if person == "learner" and unclear is not None:  # the form comes back
        pages.append(post(client, served(client, slug, pack=pack), htmx=htmx, **unclear))

    for page in pages:
        body = text(page) + str(page.headers)
        assert page.status_code == 200
        assert [secret for secret in SECRETS if secret in body] == []


def test_no_page_before_the_answer_holds_the_key_number(tiny, signed_in):
    serving = served(signed_in, "share")
    key = 16 * float(serving.params["p"]) / (float(serving.params["tp"]) * float(serving.params["pp"]))

    assert not re.search(rf"\b{key:g}\b", text(signed_in.get("/practice/tiny/share/")).split("<main")[1])


def test_money_in_a_stem_is_money_and_math_is_math(tiny, signed_in):
    page = text(signed_in.get("/practice/tiny/too-wide/"))

    assert "$3 an hour or $2 at night" in page
    assert "<mi>h</mi><mo>&gt;</mo><mn>80</mn>" in page


# --- people ----------------------------------------------------------------------------------------------


def test_anyone_may_read_and_is_asked_to_sign_in(tiny, client):
    page = text(client.get("/practice/tiny/too-wide/"))

    assert "One layer alone" in page
    assert "/sign-in?next=%2Fpractice%2Ftiny%2Ftoo-wide%2F" in page
    assert '<button type="submit">Answer' not in page
    assert not Serving.objects.exists()


@pytest.mark.parametrize("htmx", [False, True])
def test_an_expired_sign_in_keeps_what_was_chosen(tiny, signed_in, learner, htmx):
    serving = served(signed_in)
    signed_in.logout()

    sent_away = post(signed_in, serving, choice="opt-pp", htmx=htmx)
    back = sent_away.headers["HX-Redirect" if htmx else "Location"]
    signed_in.force_login(learner)
    page = text(signed_in.get("/practice/tiny/too-wide/?choice=opt-pp"))

    assert back == "/sign-in?next=%2Fpractice%2Ftiny%2Ftoo-wide%2F%3Fchoice%3Dopt-pp"
    assert str(serving.nonce) in page
    assert re.search(r'value="opt-pp" required checked', page)
    assert not Response.objects.exists()


def test_a_form_from_elsewhere_is_refused(tiny, learner):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(learner)
    serving = served(strict)

    assert post(strict, serving, choice="key-tp").status_code == 403
    assert not Response.objects.exists()


@pytest.mark.parametrize(
    "path", ["nope/", "tiny/nope/", "tiny/%3Cscript%3E/", "nope/nope/", "tiny/too-wide/answered/x/"]
)
def test_what_is_not_there_is_a_plain_404(tiny, signed_in, path):
    assert signed_in.get(f"/practice/{path}").status_code == 404


def test_reading_an_answer_address_leads_nowhere(tiny, signed_in):
    assert signed_in.get("/practice/tiny/too-wide/answer").status_code == 405


# --- keyboard and screen readers -------------------------------------------------------------------------


def test_the_form_is_a_named_group_of_named_radios_in_a_live_region(tiny, signed_in):
    page = text(signed_in.get("/practice/tiny/too-wide/"))

    assert page.count("<fieldset") == 1
    assert "<legend>Choose one</legend>" in page
    assert len(re.findall(r'<label class="choice">\s*<input type="radio" name="choice"', page)) == 4
    assert '<div aria-live="polite">' in page
    assert "onclick" not in page
    assert " style=" not in page


def test_the_verdict_takes_the_focus(tiny, signed_in):
    page = text(post(signed_in, served(signed_in), choice="key-tp", htmx=True))

    assert '<h2 class="verdict good" tabindex="-1" autofocus>Right.</h2>' in page


# --- budget ----------------------------------------------------------------------------------------------


def test_pages_stay_within_twelve_queries(tiny, signed_in, django_assert_max_num_queries):
    for path in ("/practice/", "/practice/tiny/", "/practice/tiny/too-wide/", "/practice/tiny/too-wide/"):
        with django_assert_max_num_queries(12):
            signed_in.get(path)
    serving = Serving.objects.select_related("question__pack").get(question__slug="too-wide")
    with django_assert_max_num_queries(12):
        post(signed_in, serving, choice="opt-pp", htmx=True)
    with django_assert_max_num_queries(12):
        signed_in.get(f"/practice/tiny/too-wide/answered/{serving.nonce}/")
