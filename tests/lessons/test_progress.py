"""What was read is remembered, the cheat sheet is calculated, and a broken lesson breaks nothing else."""

import re

import pytest
from django.core.checks import run_checks
from django.urls import reverse

from calculators.predict.collectives import all_reduce_bytes
from tests.lessons.examples import lesson_file
from tutor.lessons import catalogue
from tutor.lessons.cheat_sheet import HIDDEN, LAYERS, cheat_sheet
from tutor.lessons.models import Reading

TP, PP = "tensor-parallelism", "pipeline-parallelism"


@pytest.fixture
def reader(client, django_user_model):
    client.force_login(django_user_model.objects.create_user("ada"))
    return client


def page(client, slug=""):
    address = reverse("lessons:lesson", args=[slug]) if slug else reverse("lessons:index")
    return " ".join(client.get(address).content.decode().split())


@pytest.mark.django_db
def test_a_lesson_read_to_its_end_is_remembered_and_leads_to_the_next(reader):
    following = catalogue.lessons()[TP].next
    assert "Read. Next:" in page(reader, TP)

    answer = reader.post(reverse("lessons:read", args=[TP]))

    assert answer.url == reverse("lessons:lesson", args=[following])
    assert Reading.objects.get().lesson == TP
    assert "You read this on" in page(reader, TP)
    assert page(reader).count(">read</span>") == 1
    assert re.search(r"You have read <span class=\"num\">1</span> of", page(reader))
    reader.post(reverse("lessons:read", args=[TP]))
    assert Reading.objects.count() == 1  # twice is once


@pytest.mark.django_db
def test_a_lesson_can_be_marked_as_unread(reader):
    reader.post(reverse("lessons:read", args=[TP]))

    answer = reader.post(reverse("lessons:read", args=[TP]), {"again": "1"})

    assert answer.url == reverse("lessons:lesson", args=[TP])
    assert not Reading.objects.exists()


@pytest.mark.django_db
def test_the_list_says_what_comes_next_and_how_many_minutes_are_left(reader):
    lessons = list(catalogue.lessons().values())
    reader.post(reverse("lessons:read", args=[lessons[0].slug]))

    shown = page(reader)

    assert f"Go on with {lessons[1].title}" in shown
    assert f'<span class="num">{sum(lesson.minutes for lesson in lessons[1:])}</span> minutes' in shown
    for lesson in lessons[1:]:
        reader.post(reverse("lessons:read", args=[lesson.slug]))
    assert "You have read all" in page(reader)


@pytest.mark.django_db
def test_the_first_page_names_the_next_lessons_and_where_to_go_on(reader):
    lessons = list(catalogue.lessons().values())
    reader.post(reverse("lessons:read", args=[lessons[0].slug]))

    home = " ".join(reader.get("/").content.decode().split())

    assert f"You have read 1 of {len(lessons)} lessons." in home
    assert f"Go on with {lessons[1].title}" in home
    assert f"All {len(lessons)} lessons" in home
    for lesson in lessons[1:5]:
        assert reverse("lessons:lesson", args=[lesson.slug]) in home
    assert reverse("lessons:lesson", args=[lessons[5].slug]) not in home


@pytest.mark.django_db
def test_a_visitor_reads_everything_and_is_asked_to_sign_in_to_be_remembered(client):
    assert "Read. Next:" not in page(client, TP)

    answer = client.post(reverse("lessons:read", args=[TP]))

    assert answer.url == f"/sign-in?next=%2Flessons%2F{TP}%2F"
    assert client.post("/lessons/nowhere/read").status_code == 404
    assert client.get(reverse("lessons:read", args=[TP])).status_code == 405


@pytest.mark.django_db
def test_a_broken_lesson_says_so_and_the_others_are_shown(client, tmp_path, monkeypatch):
    lesson_file(tmp_path)
    lesson_file(tmp_path, body="## Why\n\n[x](/nowhere/at/all)\n", name="broken.md")
    monkeypatch.setattr(catalogue, "CONTENT", tmp_path)

    broken = client.get("/lessons/broken/")
    assert broken.status_code == 503
    assert "This lesson cannot be shown" in broken.content.decode()
    assert list(catalogue.lessons()) == ["counting"]
    assert client.get("/lessons/").status_code == client.get("/lessons/counting/").status_code == 200
    assert any("broken.md, line" in str(error) for error in run_checks(tags=["lessons"]))


@pytest.mark.django_db
def test_a_lesson_reads_on_while_the_bank_is_empty(client):
    response = client.get("/lessons/tp-or-pp/")

    assert response.status_code == 200
    assert "The question tp-or-pp/bytes-ratio is not in the bank." in response.content.decode()


def test_a_false_sentence_in_a_lesson_is_a_defect_with_its_line(tmp_path, monkeypatch):
    lesson_file(tmp_path, body="## Why\n\nWith data parallelism a full copy sits on each GPU.\n")
    monkeypatch.setattr(catalogue, "CONTENT", tmp_path)

    assert any("holds of plain (replicated) data parallelism alone" in str(d) for d in catalogue.defects())


def test_the_cheat_sheet_says_of_tensor_parallelism_what_counting_says():
    row = next(row for row in cheat_sheet().rows if row.family == "tp")
    sent = 2 * LAYERS * float(all_reduce_bytes(2 * HIDDEN, 8))

    assert row.decode == f"{2 * LAYERS} calls, {sent / 2**20:g}\N{NO-BREAK SPACE}MiB"
    assert [row.family for row in cheat_sheet().rows] == ["dp", "tp", "pp", "sp", "cp", "ep"]


@pytest.mark.django_db
def test_the_cheat_sheet_is_a_page_with_all_six_and_a_link_from_the_lessons(client):
    sheet = client.get(reverse("cheat-sheet")).content.decode()

    assert all(row.training in sheet for row in cheat_sheet().rows)
    assert reverse("cheat-sheet") in page(client)
