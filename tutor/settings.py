"""Every setting of the site. What differs from laptop to class is in the environment (docs/deploy.md)."""

import contextlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dj_database_url
from csp.constants import NONCE, NONE, SELF
from django.core.management.utils import get_random_secret_key

from calculators.lab.quota import Quota, QuotaError

BASE_DIR = Path(__file__).resolve().parent.parent
# Everything that is written while the site runs: databases, secrets, collected static files.
HOME = Path(os.environ.get("SIXFOLD_HOME", BASE_DIR / "var"))


def _kept_secret(name: str, make: Callable[[], str]) -> str:
    """The secret kept in the file `name` beside the databases; made on first use, by one process only."""
    HOME.mkdir(parents=True, exist_ok=True)
    path = HOME / name
    if not path.exists():
        # Written whole under another name and then linked: a second process sees all of it or nothing.
        with tempfile.NamedTemporaryFile("w", dir=HOME, prefix=f".{name}-") as file:  # made with mode 0600
            file.write(make())
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_text().strip()


SECRET_KEY = os.environ.get("SIXFOLD_SECRET_KEY") or _kept_secret("secret-key", get_random_secret_key)
# Whoever opens /enter?token=… with this is the owner; `manage.py start` prints that address.
ENTRY_TOKEN = os.environ.get("SIXFOLD_ENTRY_TOKEN") or _kept_secret(
    "entry-token", lambda: secrets.token_urlsafe(24)
)
DEBUG = os.environ.get("SIXFOLD_DEBUG", "") == "1"
ALLOWED_HOSTS = os.environ.get("SIXFOLD_HOSTS", "127.0.0.1 localhost [::1]").split()

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "template_partials.apps.SimpleAppConfig",
    "tutor",
    "tutor.lessons",
    "quizzes",
    "calculators",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "tutor.urls"
WSGI_APPLICATION = "tutor.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            # template_partials wraps this loader itself when it is listed in full.
            "loaders": [
                (
                    "template_partials.loader.Loader",
                    [
                        (
                            "django.template.loaders.cached.Loader",
                            [
                                "django.template.loaders.filesystem.Loader",
                                "django.template.loaders.app_directories.Loader",
                            ],
                        )
                    ],
                )
            ],
            "builtins": ["template_partials.templatetags.partials", "calculators.templatetags.fields"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "tutor.htmx.csp_nonce",
                "tutor.navigation.surroundings",
            ],
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        os.environ.get("DATABASE_URL", f"sqlite:///{HOME / 'tutor.sqlite3'}"), conn_max_age=60
    )
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # WAL with IMMEDIATE loses no update and never meets "database is locked" at lock upgrade;
    # the DEFERRED default failed 298 of 450 concurrent updates when we tried it.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The run ledger is SQLAlchemy's (calculators/lab/store.py); Django only passes its address on.
LEDGER_URL = os.environ.get("SIXFOLD_LEDGER_URL", f"sqlite:///{HOME / 'runs.sqlite3'}")

# The lab's limits are read where they are needed; what is no limit is said here, before anything starts.
try:
    Quota.from_environment()
except QuotaError as error:
    sys.exit(str(error))

USE_TZ = True
TIME_ZONE = os.environ.get("SIXFOLD_TIME_ZONE", "UTC")
LANGUAGE_CODE = "en"
LOGIN_URL = "tutor:sign-in"
LOGIN_REDIRECT_URL = "tutor:home"

STATIC_URL = "static/"
STATIC_ROOT = HOME / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "tutor.static.PlotlyFinder",  # {% static 'plotly.min.js' %}
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True  # forms carry the token; no script needs the cookie
CSRF_FAILURE_VIEW = "tutor.views.form_refused"
CSRF_TRUSTED_ORIGINS = os.environ.get("SIXFOLD_ORIGINS", "").split()

# Behind a proxy that speaks HTTPS (docs/deploy.md). A laptop's own address has no certificate.
if os.environ.get("SIXFOLD_HTTPS", "") == "1":
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = int(os.environ.get("SIXFOLD_HSTS_SECONDS", "3600"))
# Whether every other name of the domain speaks HTTPS, for ever, is not for this site to promise.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

# A broken page shows the reader a sentence and the terminal the traceback.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"terminal": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["terminal"], "level": "WARNING"},
    "loggers": {
        "django": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR"},  # a mistyped address is not worth a line
    },
}
