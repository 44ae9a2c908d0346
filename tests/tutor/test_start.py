"""The one command: it serves, signs in, survives losses, and leaves nothing behind however it ends."""

import http.cookiejar
import os
import signal
import socket
import urllib.error
import urllib.request

import psutil
import pytest

from tests.tutor.sites import MAKE_RUN, MANAGE_START, end_group, free_port, started

pytestmark = pytest.mark.distributed  # the lab worker has torch loaded


def browser():
    """Something that keeps cookies, as a browser does."""
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)


def test_the_printed_address_signs_the_owner_in(tmp_path):
    with started([*MAKE_RUN, f"PORT={free_port()}"], tmp_path) as site:
        page = browser().open(site.address()).read().decode()

    assert "owner" in page
    assert "Sign out" in page


def test_a_wrong_token_is_refused_with_a_sentence(tmp_path):
    with started([*MANAGE_START, "--port", str(free_port())], tmp_path) as site:
        wrong = site.address()[:-1] + "!"
        with pytest.raises(urllib.error.HTTPError) as refused:
            browser().open(wrong)

    assert refused.value.code == 403
    assert "the one this site was started with" in refused.value.read().decode()


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
def test_no_process_is_left_behind(tmp_path, command, end):
    port = free_port()
    arguments = [f"PORT={port}"] if command is MAKE_RUN else ["--port", str(port)]
    with started([*command, *arguments], tmp_path) as site:
        site.address()
        assert len(site.processes()) >= 4  # start, gunicorn, its worker, the lab's

        end(site)

        assert site.left_over(seconds=8) == []


def test_a_process_that_dies_is_started_again_and_said_so(tmp_path):
    with started([*MANAGE_START, "--port", str(free_port())], tmp_path) as site:
        address = site.address()
        lost = site.process_of("gunicorn")
        os.kill(lost.pid, signal.SIGKILL)
        site.wait_for(r"The web server was ended by SIGKILL\. Starting it again in 1 s\.")
        page = browser().open(address, timeout=10).read().decode()
        again = site.process_of("gunicorn")

    assert "Sign out" in page  # the link waited in the open socket meanwhile
    assert again.pid != lost.pid
    assert not psutil.pid_exists(lost.pid)


def test_a_taken_port_is_said_and_the_next_one_used(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started([*MANAGE_START, "--port", str(port)], tmp_path) as site:
            address = site.address()
            said = site.printed

    assert f"Port {port} is taken; using " in said
    assert f":{port}/" not in address
