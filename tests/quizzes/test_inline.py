"""A question inside a lesson: the same form and feedback, in its own element."""

import re

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory

from quizzes.inline import inline_check, prepare_checks
from quizzes.models import Serving
from tests.quizzes.conftest import post

pytestmark = pytest.mark.django_db


@pytest.fixture
def lesson(learner):
    request = RequestFactory().get("/lessons/pipeline-parallelism/")
    request.user = learner
    return request


def test_a_check_is_a_form_that_posts_to_the_practice_page(tiny, lesson):
    html = inline_check("tiny/too-wide", lesson)

    assert '<section id="check-tiny-too-wide"' in html
    assert 'action="/practice/tiny/too-wide/answer"' in html
    assert 'hx-target="#check-tiny-too-wide"' in html
    assert "csrfmiddlewaretoken" in html
    assert "FEEDBACK" not in html


def test_the_feedback_takes_the_place_of_the_check(tiny, lesson, signed_in):
    inline_check("tiny/too-wide", lesson)
    serving = Serving.objects.get()

    fragment = post(
        signed_in, serving, htmx=True, target="check-tiny-too-wide", choice="opt-pp"
    ).content.decode()

    assert fragment.lstrip().startswith('<section id="check-tiny-too-wide"')
    assert "FEEDBACK-PP" in fragment
    assert "Next question" not in fragment


def test_without_javascript_the_check_leads_to_the_practice_page(tiny, lesson, signed_in):
    inline_check("tiny/too-wide", lesson)
    serving = Serving.objects.get()

    assert post(signed_in, serving, choice="opt-pp")["Location"].startswith(
        "/practice/tiny/too-wide/answered/"
    )


def test_the_same_check_twice_is_one_showing(tiny, lesson):
    one, same = (
        re.search(r'name="nonce" value="([^"]+)"', inline_check("tiny/share", lesson))[1] for _ in "ab"
    )
    assert one == same
    assert Serving.objects.count() == 1


def test_a_visitor_reads_the_question_and_is_asked_to_sign_in(tiny, lesson):
    lesson.user = AnonymousUser()

    html = inline_check("tiny/too-wide", lesson)

    assert "One layer alone" in html
    assert "/sign-in?next=%2Fpractice%2Ftiny%2Ftoo-wide%2F" in html
    assert not Serving.objects.exists()


@pytest.mark.parametrize("reference", ["tiny/nothing", "nothing/too-wide", "nothing", "<b>/x"])
def test_a_check_that_is_not_there_is_a_sentence(tiny, lesson, reference):
    html = inline_check(reference, lesson)

    assert "is not in the bank" in html
    assert "<b>" not in html


def test_a_check_seen_before_costs_two_queries(tiny, lesson, django_assert_num_queries):
    inline_check("tiny/too-wide", lesson)
    again = RequestFactory().get("/lessons/pipeline-parallelism/")
    again.user = lesson.user

    with django_assert_num_queries(2):
        inline_check("tiny/too-wide", again)


def test_checks_prepared_together_cost_no_more_than_one(tiny, lesson, django_assert_num_queries):
    references = ["tiny/too-wide", "tiny/share", "tiny/which-send", "tiny/nothing"]

    with django_assert_num_queries(4):
        prepare_checks(references, lesson)
        shown = [inline_check(reference, lesson) for reference in references]

    assert [html.count("<form") for html in shown] == [1, 1, 1, 0]
