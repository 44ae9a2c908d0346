"""The product as a person has it: `make run` to its first page, and a click to a plotted result, in Chromium."""

import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.bench.launching import RANKS, SMALL
from tests.bench.results import Result, within
from tests.conftest import CHROMIUM, CHROMIUM_FLAGS
from tests.tutor.sites import end_group, free_port, started

CLICKS = 5


def measure() -> list[Result]:
    """Seconds from `make run` to its first page, and from the click to the plot of a warm four-rank run."""
    with tempfile.TemporaryDirectory(prefix="sixfold-bench-") as home:
        with running(Path(home)):
            pass  # the first start makes the databases and collects static files
        started = time.perf_counter()
        with running(Path(home)) as address:
            first_page = time.perf_counter() - started
            clicks = sorted(_clicks(address))
    return [
        within("make run to first page, nothing changed", first_page, 5, "s"),
        within(
            "click to plotted result, warm 4-rank TP run",
            clicks[len(clicks) // 2],
            2.5,
            "s",
            note=f"{SMALL['layers']} layers, {SMALL['steps']} tokens; "
            + ", ".join(f"{s:.2f}" for s in clicks),
        ),
    ]


@contextmanager
def running(home: Path) -> Iterator[str]:
    """`make run` in a home of its own, until the block ends; the address that signs the owner in."""
    with started(["make", "--no-print-directory", "run", f"PORT={free_port()}"], home) as site:
        address = site.address()
        with urllib.request.urlopen(address.split("/enter")[0] + "/") as first_page:
            first_page.read()
        yield address
        end_group(site)
        site.process.wait(timeout=30)


def _clicks(address: str) -> list[float]:
    """Seconds from *Start the run* to bars on the page, a few times; the first run is only warm-up."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        page = browser.new_page()
        page.goto(address)
        base = address.split("/enter")[0]
        seconds = [_click(page, base) for _ in range(CLICKS + 1)]
        browser.close()
    return seconds[1:]


def _click(page: Page, base: str) -> float:
    page.goto(f"{base}/runs/new?experiment=tensor-decode")
    page.locator("details.spec summary").click()
    page.locator("[name=ranks]").fill(str(RANKS))
    for name, value in SMALL.items():
        page.locator(f"[name={name}]").fill(str(value))
    page.wait_for_timeout(500)  # the forecast follows the fields
    started = time.perf_counter()
    page.get_by_role("button", name="Start the run").click()
    page.locator("#wire-plot .bars .point, #wire-plot .scatterlayer .point").first.wait_for(timeout=60_000)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit("Run it with the others: make bench.")
