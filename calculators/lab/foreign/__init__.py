"""Meter somebody else's torch.distributed program without changing it: `python -m calculators.lab meter -- …`.

`launching.py` starts the program with `startup/` first on PYTHONPATH. Inside every process of it, `hook.py` waits for
torch.distributed, `kernels.py` sees each call, `recorder.py` keeps count and writes a `Record`. Afterwards `wires.py`
joins sockets, `expected.py` predicts what gloo should have moved, `families.py` guesses, and `report.py` says it all.
"""
