"""Who may come in: the owner by the link that `make run` prints, anyone else by name and password."""

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

OWNER = "owner"


class SignInForm(AuthenticationForm):
    """Name and password of an account that exists."""

    error_messages = AuthenticationForm.error_messages | {
        "invalid_login": "No account has this name and password. Capitals count in both.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The page begins with a way in that needs no field; do not scroll past it.
        self.fields["username"].widget.attrs.pop("autofocus", None)


def owner_for(token: str) -> AbstractBaseUser | None:
    """The owner, made on first use, if `token` is the one that `make run` printed."""
    if not secrets.compare_digest(token.encode(), settings.ENTRY_TOKEN.encode()):
        return None
    owner, is_new = get_user_model().objects.get_or_create(
        username=OWNER, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        owner.set_unusable_password()
        owner.save(update_fields=["password"])
    return owner


def safe_next(request: HttpRequest, wanted: str | None, default: str) -> str:
    """`wanted` if it is an address of this site, else `default`."""
    is_ours = wanted and url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if wanted and is_ours else default
