"""Runs a module as `python -m` does, in a process that cannot outlive the one that started it.

`python -m tutor.tethered PID MODULE ARGUMENTS…`, where PID is the process that it belongs to.
"""

import runpy
import signal
import sys

from calculators.lab.lifeline import die_with_parent

if __name__ == "__main__":
    parent, module = sys.argv[1:3]
    die_with_parent(parent=int(parent))
    # Ctrl-C reaches everybody on the terminal. The owner answers it and sends us SIGTERM; a module that wants
    # to hear it all the same sets its own handler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.argv[:2]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
