"""A program of its own for test_concurrency: many threads, real transactions, a database file.

Django's test database for SQLite lives in memory, where threads cannot wait for each other as they do in use.
Prints what happened as JSON.
"""

import json
import sys
import threading
from pathlib import Path

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.test import Client  # noqa: E402

from quizzes.bank import import_pack  # noqa: E402
from quizzes.models import Response, Serving  # noqa: E402
from quizzes.packs.checking import check_pack  # noqa: E402

THREADS = 8


def at_once(work):
    """Runs `work(i)` in every thread at the same moment; gives the results in order."""
    barrier, results = threading.Barrier(THREADS), [None] * THREADS

    def run(i):
        try:
            barrier.wait()
            results[i] = work(i)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def signed_in(learner):
    client = Client()
    client.force_login(learner)
    return client


def main():
    call_command("migrate", verbosity=0)
    import_pack(check_pack(Path(__file__).parent / "packs" / "tiny"))
    learner = User.objects.create_user("ada")
    clients = [signed_in(learner) for _ in range(THREADS)]

    opened = at_once(lambda i: clients[i].get("/practice/tiny/too-wide/").status_code)
    servings = Serving.objects.count()
    nonce = str(Serving.objects.get().nonce)

    def answer(i):
        reply = clients[i].post(
            "/practice/tiny/too-wide/answer",
            {"nonce": nonce, "choice": sys.argv[1].split(",")[i % len(sys.argv[1].split(","))]},
            headers={"HX-Request": "true", "HX-Target": "question"},
        )
        return reply.status_code, reply.content.decode()

    replies = at_once(answer)
    json.dump(
        {
            "opened": opened,
            "servings": servings,
            "statuses": [status for status, _ in replies],
            "bodies": sorted({body for _, body in replies}),
            "responses": list(Response.objects.values_list("chosen_option_ids", "first_attempt")),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
