"""What every page has around its content, the first page, and the pages for when something is wrong."""

import re

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.test import Client
from django.urls import path

from quizzes.bank import load_builtin_packs
from tutor import urls
from tutor.lessons.catalogue import lessons

pytestmark = pytest.mark.django_db


def broken(request):
    raise RuntimeError("a secret in a traceback")


def forbidden(request):
    raise PermissionDenied


def suspicious(request):
    raise SuspiciousOperation


urlpatterns = [
    *urls.urlpatterns,
    path("broken", broken),
    path("forbidden", forbidden),
    path("odd", suspicious),
]


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def test_the_first_page_is_open_to_everyone_and_says_what_the_site_is(client):
    page = client.get("/")

    assert page.status_code == 200
    assert "Read how a split works" in text_of(page)
    assert "Read the first lesson" in text_of(page)


def test_the_first_page_names_the_first_lessons_and_leads_to_all(client):
    page = text_of(client.get("/"))

    assert all(lesson.title in page for lesson in list(lessons().values())[:4])
    assert f"All {len(lessons())} lessons" in page


def test_the_first_page_takes_few_queries(signed_in, django_assert_max_num_queries):
    load_builtin_packs()
    signed_in.get("/")

    with django_assert_max_num_queries(5):
        signed_in.get("/")


def test_every_page_forbids_inline_script_and_foreign_sources(client):
    page = client.get("/")
    policy = page.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    nonce = re.search(r"'nonce-([^']+)'", policy)[1]
    scripts = re.findall(r"<script[^>]*>", page.content.decode())
    assert all(f'nonce="{nonce}"' in tag or 'src="/static/' in tag for tag in scripts)
    assert not re.search(r"\sstyle=|\son\w+=", page.content.decode())


def test_the_current_section_is_marked(client):
    page = client.get("/lessons/").content.decode()

    assert re.search(r'<a href="/lessons/" aria-current="page">Lessons</a>', page)
    assert page.count("aria-current") == 1


def test_signing_in_leads_back_to_the_page_one_was_on(client):
    assert 'href="/sign-in?next=%2Flessons%2F"' in client.get("/lessons/").content.decode()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chosen_colours_are_remembered(client, theme):
    response = client.post("/theme", {"theme": theme, "next": "/lessons/"})

    assert response.headers["Location"] == "/lessons/"
    assert f'<html lang="en" data-theme="{theme}">' in client.get("/").content.decode()


@pytest.mark.parametrize("theme", ["", 'dark" onload="x'])
def test_anything_else_follows_the_system_again(client, theme):
    client.post("/theme", {"theme": "dark"})
    client.post("/theme", {"theme": theme})

    assert '<html lang="en">' in client.get("/").content.decode()


def test_a_cookie_that_was_tampered_with_is_ignored(client):
    client.cookies["theme"] = 'dark" onload="x'

    assert '<html lang="en">' in client.get("/").content.decode()


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/nowhere", 404, "There is no page here"),
        ("/forbidden", 403, "That is not open to you"),
        ("/odd", 400, "This request could not be read"),
        ("/broken", 500, "Something broke on our side"),
    ],
)
@pytest.mark.urls(__name__)
def test_what_goes_wrong_is_a_plain_page_with_a_way_back(address, status, sentence):
    client = Client(raise_request_exception=False)

    page = client.get(address)

    assert page.status_code == status
    assert sentence in text_of(page)
    assert 'href="/"' in page.content.decode()
    assert "secret" not in page.content.decode()
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
