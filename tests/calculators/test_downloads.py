"""Downloads hold what the ledger holds, for programs and for spreadsheets."""

import csv
import io

from django.urls import reverse

from calculators.lab import store
from calculators.lab.spec import Spec
from calculators.runs.downloads import plain_cell
from tests.calculators.made_runs import measured_run


def test_the_json_is_the_result_with_spec_and_matrices(client, ledger):
    run_id = measured_run(ledger, job="pipeline", wire_off_by=3)

    response = client.get(reverse("calculators:run-json", args=[run_id]))

    found = response.json()
    with ledger.reading() as session:
        expected = store.result_of(session, run_id)
    assert {key: found[key] for key in expected} == expected
    assert Spec.parse(found["spec"]).to_dict() == found["spec"]
    assert [len(row) for row in found["matrix"]["measured"]] == [2, 2]
    assert response["Content-Disposition"] == f'attachment; filename="run-{run_id}.json"'


def test_the_csv_has_a_row_for_every_comparison(client, ledger):
    run_id = measured_run(ledger, wire_off_by=3)

    response = client.get(reverse("calculators:run-csv", args=[run_id]))

    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    with ledger.reading() as session:
        expected = store.comparisons_of(session, run_id)
    assert [(row["quantity"], int(row["rank"]), row["peer"]) for row in rows] == [
        (str(c.quantity), c.rank, "" if c.peer is None else str(c.peer)) for c in expected
    ]
    assert [float(row["measured"]) for row in rows] == [c.measured for c in expected]
    assert {row["unexplained"] for row in rows if row["quantity"] == "wire bytes sent"} == {"3"}


def test_text_in_a_csv_is_never_a_formula():
    cells = [plain_cell(text) for text in ("=1+1", "+1", "-1", "@x", "\tx", "plain", -48.0, None)]

    assert cells == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "plain", -48, ""]


def test_the_spec_comes_as_a_file_that_the_command_takes(client, ledger):
    run_id = measured_run(ledger, note='a "quoted" note')

    response = client.get(reverse("calculators:run-toml", args=[run_id]))

    with ledger.reading() as session:
        expected = store.get_run(session, run_id).spec
    assert Spec.from_toml(response.content.decode()) == expected
