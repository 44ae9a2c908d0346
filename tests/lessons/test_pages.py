"""The pages: everything a lesson promises is there, nothing that gives an answer away is."""

import re
from html.parser import HTMLParser

import pytest

from calculators.lab.guided import GUIDED
from quizzes import markdown
from quizzes.models import Question
from tests.lessons.reading import text_of
from tutor.lessons.catalogue import lessons
from tutor.lessons.markup import Piece
from tutor.lessons.pieces import render_piece

SLUGS = list(lessons())


class Outline(HTMLParser):
    """What matters of a page to somebody who cannot see it."""

    def __init__(self, html):
        super().__init__()
        self.headings, self.ids, self.described, self.labels, self.inputs, self.inline = (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("aria-labelledby", "aria-describedby"):
            self.described.extend((given.get(name) or "").split())
        if tag == "label":
            self.labels.append(given.get("for"))
        if tag in ("input", "select", "textarea") and given.get("type") not in (
            "hidden",
            "radio",
            "checkbox",
        ):
            self.inputs.append(given.get("id"))
        if "style" in given or any(name.startswith("on") or name.startswith("hx-on") for name in given):
            self.inline.append((tag, given))


@pytest.mark.django_db
def test_the_index_says_what_each_lesson_is_for_in_reading_order(client):
    page = client.get("/lessons/").content.decode()

    places = [page.index(f'href="/lessons/{slug}/"') for slug in SLUGS]
    assert places == sorted(places)
    for lesson in lessons().values():
        assert lesson.purpose in page
        assert f"{lesson.minutes} minutes" in page
    assert 'href="/glossary/"' in page


@pytest.mark.django_db
@pytest.mark.parametrize("slug", SLUGS)
def test_a_lesson_page_is_whole(client, bank, slug):
    lesson = lessons()[slug]

    response = client.get(f"/lessons/{slug}/")

    page = response.content.decode()
    assert response.status_code == 200
    assert page.count("<svg") >= 1
    assert page.count("Check yourself</") + page.count('aria-label="Check yourself"') >= len(lesson.questions)
    assert "is not in the bank" not in page
    for name in lesson.experiments:
        assert f"/runs/new?experiment={name}" in page or f"/experiments/{name}/" in page
    for source in lesson.sources:
        assert source.url in page
    assert not re.search(r'class="piece-\d|answer-(opens|closes)|\{\{ | \}\}|:::', page)


@pytest.mark.django_db
@pytest.mark.parametrize("slug", SLUGS)
def test_a_page_reads_well_without_eyes(client, bank, slug):
    outline = Outline(client.get(f"/lessons/{slug}/").content.decode())

    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(
        after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False)
    )
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.described) <= set(outline.ids)
    assert set(outline.inputs) <= set(outline.labels)
    assert outline.inline == []


@pytest.mark.django_db
@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("who", ["anonymous", "learner"])
def test_no_key_reaches_the_browser_before_the_answer(client, learner, bank, slug, who):
    if who == "learner":
        client.force_login(learner)
    asked = lessons()[slug].questions

    html = client.get(f"/lessons/{slug}/").content.decode()

    page = text_of(html)
    for pack, name in (reference.split("/") for reference in asked):
        content = Question.objects.get(pack__address=pack, slug=name).revision.parsed()
        for secret in (passage.text for passage in content.texts() if not passage.before and passage.text):
            literal = re.split(r"\{\{.*?\}\}|\[\[|\]\]\{.*?\}|\$", secret)
            longest = max((markdown.plain(part) for part in literal), key=len)
            assert len(longest) < 30 or longest not in page, content.id
        for belief in content.misconceptions():
            assert f'"{belief}"' not in html
    assert "credit" not in html
    assert "cue" not in re.findall(r'class="([a-z-]+)"', html)


@pytest.mark.django_db
@pytest.mark.parametrize("slug", SLUGS)
def test_a_lesson_stays_within_its_queries(client, learner, bank, slug, django_assert_max_num_queries):
    client.force_login(learner)
    client.get(f"/lessons/{slug}/")

    with django_assert_max_num_queries(12):
        client.get(f"/lessons/{slug}/")


@pytest.mark.django_db
def test_sizes_in_the_address_change_the_picture_without_any_script(client):
    page = client.get("/lessons/tensor-parallelism/").content.decode()
    name = re.search(r'name="(m\d+-tp)"', page)[1]

    changed = client.get(f"/lessons/tensor-parallelism/?{name}=2").content.decode()

    assert "Device 3" in re.search(r"<svg.*?</svg>", page, re.DOTALL)[0]
    assert "Device 3" not in re.search(r"<svg.*?</svg>", changed, re.DOTALL)[0]


@pytest.mark.django_db
def test_a_lesson_that_is_not_there_is_not_found(client):
    assert client.get("/lessons/quantum-parallelism/").status_code == 404


@pytest.mark.django_db
def test_lessons_are_for_reading_only(client):
    assert client.post("/lessons/tp-or-pp/").status_code == 405


@pytest.mark.django_db
def test_the_glossary_has_an_anchor_for_every_term_that_a_lesson_shows(client):
    outline = Outline(client.get("/glossary/").content.decode())

    linked = {
        link.href.partition("#")[2]
        for one in lessons().values()
        for link in one.body.links
        if "glossary" in link.href
    }
    assert linked <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[:2] == [1, 2]


def test_a_lesson_may_name_a_guided_experiment(rf):
    piece = Piece(kind="experiment", name="two-all-reduces", params={}, line=1)

    html = render_piece(piece, rf.get("/lessons/tensor-parallelism/"))

    assert 'href="/experiments/two-all-reduces/"' in html
    assert GUIDED["two-all-reduces"].claim in html
