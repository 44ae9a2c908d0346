"""The site's settings for tests: a throw-away home, a quick password hash, static files as they lie."""

import atexit
import os
import shutil
import tempfile

if "SIXFOLD_HOME" not in os.environ:  # what tests start inherits this one, and only its maker removes it
    os.environ["SIXFOLD_HOME"] = tempfile.mkdtemp(prefix="sixfold-test-")
    atexit.register(shutil.rmtree, os.environ["SIXFOLD_HOME"], ignore_errors=True)

from tutor.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"  # noqa: F405
STATIC_ROOT.mkdir(exist_ok=True)  # noqa: F405 -- WhiteNoise warns, for every client, of a missing folder
