"""Ports and pauses, without starting a site."""

import errno
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import pytest

from tutor.supervisor import NoPortError, Service, Supervisor, fork, listen, module


def test_the_asked_port_is_used_when_it_is_free():
    said = []
    with listen("127.0.0.1", 0, say=said.append) as listener:
        assert listener.getsockname()[1] > 0

    assert said == []


def test_a_taken_port_gives_the_next_free_one_and_a_plain_sentence():
    said = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port, say=said.append) as listener:
            used = listener.getsockname()[1]

    assert used > port
    assert said == [f"Port {port} is taken; using {used}."]


def test_no_free_port_says_which_were_tried(monkeypatch):
    monkeypatch.setattr("tutor.supervisor.PORTS_TO_TRY", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NoPortError, match=f"^Ports {port} to {port} are all taken. Name another.$"):
            listen("127.0.0.1", port, say=print)


def test_a_port_beyond_the_last_is_refused():
    with pytest.raises(NoPortError, match=r"^The port is 70000; it must lie between 0 and 65535\.$"):
        listen("127.0.0.1", 70000, say=print)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(NoPortError, match=r"^Nothing can listen on 192\.0\.2\.1:8000: Cannot assign"):
        listen("192.0.2.1", 8000, say=print)


def test_a_port_for_root_says_what_to_choose(monkeypatch):
    def refuse(self, address):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)

    with pytest.raises(NoPortError, match=r"^Port 80 is not open to you\. Choose one above 1023\.$"):
        listen("127.0.0.1", 80, say=print)


def test_what_keeps_failing_is_tried_less_and_less_often():
    said = []
    begin = partial(module, "no_such_module")
    supervisor = Supervisor([Service(name="The clock", begin=begin)], say=said.append)
    began = time.monotonic()
    while len(said) < 2 and time.monotonic() < began + 20:
        supervisor.look_after()
    supervisor.stop()

    assert said == [
        "The clock ended with status 1. Starting it again in 1 s.",
        "The clock ended with status 1. Starting it again in 2 s.",
    ]


def test_a_tethered_process_ends_when_its_owner_is_gone_before_it_could_say():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    tethered = subprocess.run([sys.executable, "-m", "tutor.tethered", str(gone.pid), "this"], timeout=20)

    assert tethered.returncode == -signal.SIGKILL


def test_a_copy_of_this_process_is_ended_by_its_signals_not_by_ours():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        copy = fork(partial(time.sleep, 60))
    finally:
        signal.signal(signal.SIGTERM, before)
    time.sleep(0.5)
    copy.terminate()

    assert copy.wait() == -signal.SIGTERM


def test_a_copy_that_fails_ends_with_a_status():
    copy = fork(partial(sys.exit, 3))

    assert copy.wait() == 3
    assert copy.poll() == 3
