"""The one command: it serves, signs in, survives losses, and leaves nothing behind however it ends."""

import http.cookiejar
import shutil
import signal
import socket
import urllib.error
import urllib.request

import pytest

from tests.tutor.sites import MAKE_RUN, MANAGE_START, end_group, free_port, started

# The lab worker has torch loaded; on a busy machine that alone can take half a minute.
pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def browser():
    """Something that keeps cookies, as a browser does."""
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A home with databases, packs and static files, as a first start leaves it."""
    home = tmp_path_factory.mktemp("home")
    with started([*MANAGE_START, "--port", str(free_port()), "--no-worker"], home) as site:
        site.address()
        end_group(site)
        assert site.left_over(seconds=20) == []
    return home


@pytest.fixture
def home(prepared, tmp_path):
    """A copy of the prepared home, so that no test waits for what is not its subject."""
    return shutil.copytree(prepared, tmp_path / "home")


def test_the_printed_address_signs_the_owner_in_and_no_other_does(home):
    with started([*MAKE_RUN, f"PORT={free_port()}"], home) as site:
        address = site.address()
        page = browser().open(address).read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            browser().open(address[:-1] + "!")
        reason = refused.value.read().decode()  # while there is a site that sends it

    assert "owner" in page
    assert "Sign out" in page
    assert refused.value.code == 403
    assert "the one this site was started with" in reason


@pytest.mark.parametrize(
    ("command", "end"),
    [
        pytest.param(MAKE_RUN, lambda site: end_group(site), id="Ctrl-C"),
        pytest.param(MAKE_RUN, lambda site: end_group(site, signal.SIGHUP), id="the terminal is closed"),
        pytest.param(MAKE_RUN, lambda site: site.process.terminate(), id="SIGTERM to make"),
        pytest.param(MAKE_RUN, lambda site: site.process.kill(), id="kill -9 of make"),
        pytest.param(MANAGE_START, lambda site: site.process.kill(), id="kill -9 of start"),
    ],
)
def test_no_process_is_left_behind(home, command, end):
    port = free_port()
    arguments = [f"PORT={port}"] if command is MAKE_RUN else ["--port", str(port)]
    with started([*command, *arguments], home) as site:
        site.address()
        assert len(site.processes()) >= 4  # start, gunicorn, its worker, the lab's

        end(site)

        assert site.left_over(seconds=30) == []  # it takes one or two, unless the machine is busy


def test_a_taken_port_and_a_lost_process_are_said_and_survived(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started([*MANAGE_START, "--port", str(port)], home) as site:
            address = site.address()
            lost = site.web_server()
            lost.kill()
            site.wait_for(r"The web server was ended by SIGKILL\. Starting it again in 1 s\.")
            page = browser().open(address, timeout=60).read().decode()
            again = site.web_server()
            said = site.printed

    assert f"Port {port} is taken; using " in said
    assert f":{port}/" not in address
    assert "Sign out" in page  # the request waited meanwhile in the socket, which stayed open
    assert again.pid != lost.pid
