"""Ways in and out: the owner's link, a name with a password, and where one lands afterwards."""

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

pytestmark = pytest.mark.django_db


def enter(client, token):
    return client.get("/enter", {"token": token})


def test_the_owners_link_signs_in_and_leads_home(client):
    response = enter(client, settings.ENTRY_TOKEN)

    assert response.headers["Location"] == "/"
    assert "owner" in client.get("/").content.decode()


def test_the_owner_is_made_once_and_has_no_password(client):
    enter(client, settings.ENTRY_TOKEN)
    enter(Client(), settings.ENTRY_TOKEN)

    owner = get_user_model().objects.get()
    assert (owner.username, owner.has_usable_password()) == ("owner", False)


@pytest.mark.parametrize("token", ["", "guess", "ключ", "x" * 10_000])
def test_any_other_token_is_refused_with_a_sentence(client, token):
    response = enter(client, token)

    assert response.status_code == 403
    assert "is not the one this site was started with" in response.content.decode()
    assert not get_user_model().objects.exists()


def test_the_link_cannot_be_cached(client):
    assert "no-store" in enter(client, settings.ENTRY_TOKEN).headers["Cache-Control"]


def test_an_account_signs_in_by_name_and_password(client, learner):
    response = client.post("/sign-in", {"username": "ada", "password": "a long pass phrase"})

    assert response.headers["Location"] == "/"
    assert "ada" in client.get("/").content.decode()


def test_a_wrong_password_is_answered_on_the_form(client, learner):
    response = client.post("/sign-in", {"username": "ada", "password": "another"})

    assert response.status_code == 200
    assert "No account has this name and password. Capitals count in both." in response.content.decode()


def test_an_empty_form_says_what_is_missing(client):
    response = client.post("/sign-in", {})

    assert response.status_code == 200
    assert response.content.decode().count("This field is required.") == 2


@pytest.mark.parametrize(
    ("wanted", "reached"),
    [
        ("/practice/tp-or-pp/?choice=a", "/practice/tp-or-pp/?choice=a"),
        ("https://elsewhere.example/", "/"),
        ("//elsewhere.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_one_goes_on_only_to_addresses_of_this_site(client, learner, wanted, reached):
    answers = {"username": "ada", "password": "a long pass phrase", "next": wanted}

    assert client.post("/sign-in", answers).headers["Location"] == reached


def test_the_page_asked_for_is_kept_in_the_form(client):
    page = client.get("/sign-in", {"next": "/runs/7/"}).content.decode()

    assert '<input type="hidden" name="next" value="/runs/7/">' in page


def test_a_fragment_asked_for_without_a_session_becomes_the_whole_page(client):
    response = client.get("/sign-in?next=/runs/7/", headers={"HX-Request": "true", "HX-Target": "live"})

    assert response.headers["HX-Redirect"] == "/sign-in?next=/runs/7/"


def test_signing_out_needs_a_post_and_ends_the_session(signed_in):
    assert signed_in.get("/sign-out").status_code == 405

    signed_in.post("/sign-out")

    assert "Sign in" in signed_in.get("/").content.decode()


def test_a_form_without_this_browsers_token_is_refused_with_a_way_back(learner):
    strict = Client(enforce_csrf_checks=True)

    response = strict.post("/sign-in", {"username": "ada", "password": "a long pass phrase"})

    assert response.status_code == 403
    assert "go back, reload the page and send it again" in response.content.decode()
