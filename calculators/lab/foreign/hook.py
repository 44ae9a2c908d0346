"""Waits in every process of a metered program until torch.distributed arrives, and until a group is formed.

Loaded by path, before and beside whatever the program imports, so it needs nothing but the standard library. torch
itself imports torch.distributed, so that alone means little; `init_process_group` is what makes a process a rank.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

RECORDS = "SIXFOLD_METER_RECORDS"
"""The environment variable that says where ranks put their records."""
_WATCHED = "torch.distributed.distributed_c10d"
_OURS = "calculators"
_ROOT = str(Path(__file__).resolve().parents[3])


def install() -> None:
    """Watch for torch.distributed, where the meter has said where records go."""
    if os.environ.get(RECORDS):
        sys.meta_path.insert(0, _Watcher())


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds one module, by asking the others, and has it changed once it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._inner.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _watch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _watch(c10d: ModuleType) -> None:
    """Learn when groups are formed and before they end. Both functions keep their names, signatures and results."""
    form: Callable[..., Any] = c10d.init_process_group
    end: Callable[..., Any] = c10d.destroy_process_group

    @functools.wraps(form)
    def init_process_group(*given: Any, **named: Any) -> Any:
        result = form(*given, **named)
        _quietly(lambda: _recorder().formed())
        return result

    @functools.wraps(end)
    def destroy_process_group(*given: Any, **named: Any) -> Any:
        _quietly(lambda: _recorder().before_end(*given, **named))
        result = end(*given, **named)
        _quietly(lambda: _recorder().ended(*given, **named))
        return result

    c10d.init_process_group = init_process_group  # type: ignore[attr-defined]
    c10d.destroy_process_group = destroy_process_group  # type: ignore[attr-defined]


def _quietly(act: Callable[[], None]) -> None:
    """A meter that fails says so once a time, and the program goes on."""
    try:
        act()
    except Exception as error:
        print(f"The meter failed in process {os.getpid()}: {type(error).__name__}: {error}", file=sys.stderr)


@functools.cache
def _recorder() -> Any:
    with _ours_alone():
        kernels = importlib.import_module("calculators.lab.foreign.kernels")
        recorder = importlib.import_module("calculators.lab.foreign.recorder").Recorder(os.environ[RECORDS])
        kernels.install(recorder)
        return recorder


@contextmanager
def _ours_alone() -> Iterator[None]:
    """Import from this checkout, and leave no trace of it: the program may have a package of the same name."""

    def taken() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name == _OURS or name.startswith(f"{_OURS}.")]
        return {name: sys.modules.pop(name) for name in names}

    theirs = taken()
    sys.path.insert(0, _ROOT)
    try:
        yield
    finally:
        sys.path.remove(_ROOT)
        taken()
        sys.modules.update(theirs)
