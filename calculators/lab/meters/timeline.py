"""The timeline meter: what a rank did from moment to moment, from the waits of its calls.

Whatever is not a wait is busy. Waits that overlap (a rank that waits in two threads) count once, from the first.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from calculators.lab.measurements import Doing, Span, Timeline

MOST_SPANS = 4_000
"""More waits than this are counted, but not kept one by one: a page could not draw them."""


class Recorder:
    """Notes each wait of this rank; `timeline` makes one story of them, `seconds` their sums."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._ended = self._began
        self._waits: list[tuple[float, float, Doing, str]] = []

    @contextmanager
    def wait(self, doing: Doing, what: str) -> Iterator[None]:
        """Whatever happens inside is a wait."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._waits.append((started, time.perf_counter(), doing, what))

    def stop(self) -> None:
        """The story ends here."""
        self._ended = time.perf_counter()

    def spans(self) -> list[Span]:
        """Busy and waiting in turn, without gaps, from the start to `stop` [s since the start]."""
        told: list[Span] = []
        now = self._began
        for start, end, doing, what in sorted(self._waits):
            start, end = max(start, now), min(end, self._ended)
            if end <= start:
                continue
            if start > now:
                told.append(self._span(now, start, Doing.BUSY, ""))
            told.append(self._span(start, end, doing, what))
            now = end
        if now < self._ended:
            told.append(self._span(now, self._ended, Doing.BUSY, ""))
        return told

    def timeline(self, rank: int) -> Timeline:
        """The first `MOST_SPANS` of the story."""
        return Timeline(rank=rank, spans=tuple(self.spans()[:MOST_SPANS]))

    def seconds(self) -> dict[Doing, float]:
        """How long altogether, of each; they add up to the whole."""
        sums = dict.fromkeys(Doing, 0.0)
        for span in self.spans():
            sums[span.doing] += span.end - span.start
        return sums

    def _span(self, start: float, end: float, doing: Doing, what: str) -> Span:
        return Span(start - self._began, end - self._began, doing, what)
