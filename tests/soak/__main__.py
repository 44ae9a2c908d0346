"""`make soak`: learners read, answer and calculate while real runs go, for a while; then a table of what came.

It proves that nothing breaks, leaks or is lost under use, not how fast the site is: `make bench` measures that.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil

from calculators.lab.spec import experiment_names
from tests.soak.visitor import Visit, Visitor, forms_of
from tests.tutor.sites import MANAGE_START, ROOT, Site, end_group, free_port, started

PASSWORD = "a pass phrase for the soak"
PATHS = {
    "first page": "/",
    "lessons": "/lessons/",
    "lesson TP": "/lessons/tensor-parallelism/",
    "lesson PP": "/lessons/pipeline-parallelism/",
    "lesson TP or PP": "/lessons/tp-or-pp/",
    "glossary": "/glossary/",
    "traffic": "/calculate/traffic",
    "split map": "/calculate/split-map",
    "runs": "/runs/",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the soak; 1 when anything broke."""
    parser = argparse.ArgumentParser(prog="make soak ARGS=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default 1)")
    parser.add_argument("--learners", type=int, default=8, help="how many at once (default 8)")
    options = parser.parse_args(arguments)
    command = [*MANAGE_START, "--port", str(free_port())]
    with (
        tempfile.TemporaryDirectory(prefix="sixfold-soak-") as folder,
        started(command, Path(folder)) as site,
    ):
        entrance = site.address()
        make_accounts(site, options.learners)
        problems = soak(site, entrance, seconds=60 * options.minutes, learners=options.learners)
        end_group(site, signal.SIGTERM)
        problems += [f"left running: {command}" for command in site.left_over(seconds=30)]
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("Nothing broke." if not problems else f"{len(problems)} problems.")
    return 1 if problems else 0


def soak(site: Site, entrance: str, *, seconds: float, learners: int) -> list[str]:
    """Lets everybody loose for `seconds`, prints what they met, and gives what was wrong."""
    origin, deadline = entrance.partition("/enter")[0], time.monotonic() + seconds
    before = memory_mb(site)
    people = [Visitor(origin) for _ in range(learners)]
    answered: list[int] = []
    owner, runs = Visitor(origin), dict[int, str]()
    owner.get("entrance", entrance)
    lives: list[Callable[[], None]] = [
        lambda number=number, person=person: answered.append(learn(person, number, until=deadline))
        for number, person in enumerate(people)
    ]
    threads = [
        threading.Thread(target=life) for life in [*lives, lambda: run_labs(owner, runs, until=deadline)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = memory_mb(site)

    visits = [visit for person in [*people, owner] for visit in person.visits]
    print(table(visits))
    done = sum(state == "verified" for state in runs.values())
    print(
        f"{sum(answered)} answers given, {stored_answers(site)} stored; {done} of {len(runs)} runs verified."
    )
    print(f"Memory of all processes: {before:.0f} MB at the start, {after:.0f} MB at the end.")
    problems = [f"{v.what}: status {v.status}" for v in visits if not 200 <= v.status < 400]
    problems += [f"run {number}: {state}" for number, state in runs.items() if state != "verified"]
    if sum(answered) != stored_answers(site):
        problems.append(f"{sum(answered)} answers were given, but {stored_answers(site)} are stored")
    if "Traceback" in site.printed:
        problems.append("the terminal shows a traceback:\n" + site.printed)
    return problems


def learn(person: Visitor, number: int, *, until: float) -> int:
    """One learner's time: sign in, then read, answer and calculate at random; how many answers were given."""
    rng, answers = random.Random(number), 0
    entry = next(form for form in forms_of(person.get("sign-in", "/sign-in")) if "username" in form.fields)
    person.send("signing in", entry, username=f"learner{number}", password=PASSWORD)
    while time.monotonic() < until:
        if rng.random() < 0.5:
            what = rng.choice(list(PATHS))
            person.get(what, PATHS[what])
        else:
            page = person.get("question", "/practice/tp-or-pp/")
            asked = next((form for form in forms_of(page) if "nonce" in form.fields), None)
            if asked is None:
                continue
            given = (
                {"choice": rng.choice(asked.choices["choice"])}
                if "choice" in asked.choices
                else {"typed": "8"}
            )
            person.send("answer", asked, **given)
            answers += person.visits[-1].status == 200
        time.sleep(rng.uniform(0.2, 1.0))
    return answers


def run_labs(owner: Visitor, runs: dict[int, str], *, until: float) -> None:
    """Starts one run after another through the pages and watches each to its end."""
    rng = random.Random(0)
    while time.monotonic() < until:
        name = rng.choice(experiment_names())
        page = owner.get("new run", f"/runs/new?experiment={name}")
        form = next(form for form in forms_of(page) if "nonce" in form.fields)
        owner.send("start a run", form)
        found = re.search(r"/runs/(\d+)/", owner.address)
        if not found:
            runs[-len(runs) - 1] = f"{name} was not started: {owner.address}"
            return
        number, patience = int(found[1]), time.monotonic() + 120
        while True:
            owner.get("watch a run", f"/runs/{number}/")
            state = outcome(owner.get("run as JSON", f"/runs/{number}.json"))
            if state or time.monotonic() > patience:
                break
            time.sleep(0.5)
        runs[number] = state or "had not ended after two minutes"


def outcome(document: str) -> str:
    """How a run ended, from its JSON; empty while it goes on."""
    run = json.loads(document or "{}")
    if run.get("status") == "done":
        return "verified" if run["verified"] else "done, but the sharded result differs"
    return run["status"] if run.get("status") in ("failed", "lost", "cancelled") else ""


def table(visits: list[Visit]) -> str:
    """Requests by kind: how many, how many failed, and how long they took in milliseconds."""
    seconds = defaultdict(list)
    for visit in visits:
        seconds[visit.what].append(visit.seconds * 1000)
    failed = defaultdict(int)
    for visit in visits:
        failed[visit.what] += not 200 <= visit.status < 400
    lines = [f"{'what':<18}{'requests':>9}{'failed':>8}{'median ms':>11}{'p95 ms':>9}{'most ms':>9}"]
    for what, times in sorted(seconds.items()):
        p95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
        lines.append(
            f"{what:<18}{len(times):>9}{failed[what]:>8}{statistics.median(times):>11.0f}{p95:>9.0f}{max(times):>9.0f}"
        )
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def memory_mb(site: Site) -> float:
    """Resident memory of every process of the site [MB]; pages they share count in each."""
    total = 0
    for process in site.processes():
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total / 1e6


def make_accounts(site: Site, learners: int) -> None:
    """Accounts `learner0`, `learner1` … on that site."""
    in_site(
        site,
        "from django.contrib.auth.models import User\n"
        f"[User.objects.create_user(f'learner{{n}}', password={PASSWORD!r}) for n in range({learners})]",
    )


def stored_answers(site: Site) -> int:
    """How many answers the site's database holds."""
    return int(in_site(site, "from quizzes.models import Response\nprint(Response.objects.count())"))


def in_site(site: Site, code: str) -> str:
    """What `code` prints in a process with that site's settings."""
    environment = {**os.environ, "SIXFOLD_HOME": str(site.home), "DJANGO_SETTINGS_MODULE": "tutor.settings"}
    command = [sys.executable, "-c", f"import django; django.setup()\n{code}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
