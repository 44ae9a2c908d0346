"""The WSGI application that a web server loads."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tutor.settings")
application = get_wsgi_application()
# Imports every view now: a broken one stops the start with one traceback, not each page with its own.
get_resolver().url_patterns  # noqa: B018
