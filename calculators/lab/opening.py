"""Opens something that may take long in a thread, so that whoever asked for it can look around, or give it up."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

T = TypeVar("T")

_TIDY_SECONDS = 0.5
"""Whoever gives up waits this long for what was half open to be gone; what takes longer goes by itself."""


class GivenUp(Exception):
    """Nobody wants it any more; raised inside the opening thread, and seen nowhere else."""


class Opening(Generic[T]):
    """`opens` enters contexts on a stack and gives what they are for; leaving this context closes them again.

    It is also handed a function to call between steps, which raises `GivenUp` once nobody waits.
    """

    def __init__(self, opens: Callable[[ExitStack, Callable[[], None]], T]) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._is_given_up = False
        self._open: ExitStack | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="opening", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_given_up = True
            opened, self._open = self._open, None
        if opened is not None:
            opened.close()
        else:
            self._thread.join(_TIDY_SECONDS)

    def is_over(self, seconds: float) -> bool:
        """Whether it is open, or failed, after waiting for at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def result(self) -> T:
        """What was opened; raises what went wrong instead."""
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def _check(self) -> None:
        if self._is_given_up:
            raise GivenUp

    def _work(self) -> None:
        try:
            with ExitStack() as stack:
                result = self._opens(stack, self._check)
                with self._lock:
                    self._check()
                    self._result, self._open = result, stack.pop_all()
        except BaseException as error:  # for the thread that waits
            self._error = error
