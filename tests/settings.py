"""The site's settings for tests: a throw-away home, a quick password hash, static files as they lie."""

import os
import tempfile

os.environ.setdefault("SIXFOLD_HOME", tempfile.mkdtemp(prefix="sixfold-test-"))

from tutor.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"  # noqa: F405
