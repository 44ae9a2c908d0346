"""Static files: plotly.js from its package, and collected again only when one has changed."""

import os

import pytest
from django.contrib.staticfiles import finders

from tutor import static


@pytest.fixture
def own_files(settings, tmp_path):
    """A site with one style sheet of its own and nothing collected yet."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "page.css").write_text("p { color: red }")
    settings.STATIC_ROOT = tmp_path / "collected"
    settings.STATICFILES_DIRS = [source]
    finders.get_finder.cache_clear()
    yield source
    finders.get_finder.cache_clear()


def test_plotly_is_the_one_file_of_its_package_that_is_found():
    found = finders.find("plotly.min.js")

    assert found.endswith("plotly/package_data/plotly.min.js")
    assert finders.find("widgetbundle.js") is None
    assert finders.find("plotly.min.js", find_all=True) == [found]


def test_nothing_is_collected_twice(own_files, settings):
    assert static.collect_if_changed() is True
    assert (settings.STATIC_ROOT / "page.css").exists()

    assert static.collect_if_changed() is False


def test_a_changed_file_is_collected_again(own_files, settings):
    static.collect_if_changed()
    (own_files / "page.css").write_text("p { color: tan }")
    os.utime(own_files / "page.css", ns=(1, 1))

    assert static.collect_if_changed() is True
    assert "tan" in (settings.STATIC_ROOT / "page.css").read_text()


def test_a_file_that_is_gone_is_not_served_any_longer(own_files, settings):
    static.collect_if_changed()
    (own_files / "page.css").rename(own_files / "other.css")

    static.collect_if_changed()

    assert not (settings.STATIC_ROOT / "page.css").exists()
