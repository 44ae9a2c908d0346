"""What people do with runs from their pages: delete, put back, import, and how they are told that they may not."""

from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from calculators.lab import store
from calculators.lab.spec import experiment
from calculators.lab.store import RunState
from calculators.runs import actions
from tests.calculators.made_runs import measured_run, running_run, waiting_run
from tests.calculators.reading import words
from tests.lab.ledgers import fresh_ledger

RUNS = reverse("calculators:runs")
IMPORT = reverse("calculators:import-runs")


def at(view, run_id):
    return reverse(f"calculators:{view}", args=[run_id])


def stored(sessions, run_id):
    with sessions.reading() as session:
        return store.get_run(session, run_id)


@pytest.fixture
def staff(client, django_user_model):
    client.force_login(django_user_model.objects.create_user("owner", is_staff=True))
    return client


@pytest.fixture
def another_box(tmp_path):
    """The ledger file of another box, with one run that is done and one that waits."""
    folder = tmp_path / "another"
    folder.mkdir()
    sessions = fresh_ledger(folder)
    measured_run(sessions, by="grace", note="from afar")
    waiting_run(sessions)
    return (folder / "runs.sqlite3").read_bytes()


def test_the_one_who_started_a_run_deletes_it(signed_in, ledger):
    run_id = measured_run(ledger)

    offered = signed_in.get(at("run", run_id))
    response = signed_in.post(at("delete-run", run_id), follow=True)

    assert f"Delete run {run_id}" in words(offered)
    assert f"Run {run_id} is deleted." in words(response)
    assert stored(ledger, run_id) is None


def test_nobody_deletes_the_run_of_another_but_the_sites_staff(signed_in, ledger, django_user_model):
    run_id = measured_run(ledger, by="grace")

    offered = signed_in.get(at("run", run_id))
    refused = signed_in.post(at("delete-run", run_id))
    signed_in.force_login(django_user_model.objects.create_user("owner", is_staff=True))
    allowed = signed_in.post(at("delete-run", run_id))

    assert "Delete run" not in words(offered)
    assert refused.status_code == 403
    assert f"Run {run_id} was started by grace; only they can delete it." in words(refused)
    assert allowed.headers["Location"] == RUNS


def test_a_run_at_work_is_not_deleted_and_the_page_says_why(signed_in, ledger):
    run_id = running_run(ledger)

    response = signed_in.post(at("delete-run", run_id), follow=True)

    assert "only what has ended can be deleted. Cancel it first." in words(response)
    assert stored(ledger, run_id) is not None


def test_a_stranger_deletes_nothing(client, ledger, db):
    run_id = measured_run(ledger)

    response = client.post(at("delete-run", run_id))

    assert response.headers["Location"].startswith(reverse("tutor:sign-in"))


def test_a_lost_run_is_put_back_in_the_queue(signed_in, ledger):
    run_id = running_run(ledger, now=timezone.now() - timedelta(seconds=10))

    offered = signed_in.get(at("run", run_id))
    signed_in.post(at("put-back", run_id))

    assert "Put it back in the queue" in words(offered)
    assert stored(ledger, run_id).state is RunState.QUEUED


def test_only_a_lost_run_is_put_back(signed_in, ledger):
    run_id = measured_run(ledger)

    response = signed_in.post(at("put-back", run_id), follow=True)

    assert "only a lost run can be put back in the queue." in words(response)


def test_more_runs_than_one_person_may_have_waiting_are_refused_with_everything_typed(
    signed_in, ledger, monkeypatch
):
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS_PER_PERSON", "1")
    run_id = waiting_run(ledger)
    spec = {key: str(value) for key, value in experiment("tensor-decode").to_dict().items()}

    asked = signed_in.post(reverse("calculators:new-run"), {**spec, "layers": "3", "nonce": "n"})
    again = signed_in.post(at("run-again", run_id), {"nonce": "m"}, follow=True)
    tried = signed_in.post(
        reverse("calculators:run-experiment", args=["128-to-1"]), {"nonce": "o"}, follow=True
    )

    sentence = "ada has 1 run waiting or running, and the limit is 1 for each person"
    assert all(sentence in words(response) for response in (asked, again, tried))
    assert 'name="layers" type="text" value="3"' in asked.content.decode()
    with ledger.reading() as session:
        assert len(store.latest_runs(session, limit=9)) == 1


def test_the_runs_of_another_box_are_imported_and_say_where_they_came_from(staff, ledger, another_box):
    given = SimpleUploadedFile("gpu-box.sqlite3", another_box)

    response = staff.post(IMPORT, {"ledger": given}, follow=True)

    assert "1 run imported; 1 had not ended." in words(response)
    assert "from afar imported" in words(response)
    [run] = response.context["list"].runs
    assert "Imported: gpu-box.sqlite3 #1. It ran there, not here." in words(staff.get(at("run", run.id)))


def test_a_file_that_is_no_ledger_is_said(staff, ledger):
    response = staff.post(IMPORT, {"ledger": SimpleUploadedFile("notes.txt", b"hello")}, follow=True)

    assert "“notes.txt” is no ledger" in words(response)


def test_no_file_is_said(staff, ledger):
    assert "No file was chosen." in words(staff.post(IMPORT, follow=True))


def test_a_file_that_is_too_large_is_said(staff, ledger, another_box, monkeypatch):
    monkeypatch.setattr(actions, "LARGEST_IMPORT_BYTES", 1024)

    response = staff.post(IMPORT, {"ledger": SimpleUploadedFile("big.sqlite3", another_box)}, follow=True)

    assert "and this page takes 1 KiB at most." in words(response)


def test_only_the_owner_imports(signed_in, ledger, another_box):
    offered = signed_in.get(RUNS)
    response = signed_in.post(IMPORT, {"ledger": SimpleUploadedFile("box.sqlite3", another_box)})

    assert "Import the runs" not in words(offered)
    assert response.status_code == 403
    assert "Only the owner of this site can import runs." in words(response)
