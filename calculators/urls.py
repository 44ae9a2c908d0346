"""Addresses of the calculator, run and experiment pages."""

from django.urls import path

from calculators import views
from calculators.experiments import views as experiments
from calculators.pages import CALCULATORS
from calculators.pages.model.pasted import read_model
from calculators.runs import actions, starting
from calculators.runs import views as runs

app_name = "calculators"
urlpatterns = [
    path("calculate/", views.index, name="index"),
    *(
        path(f"calculate/{page.name}", views.calculator, {"calculator": page}, name=page.name)
        for page in CALCULATORS
    ),
    path("calculate/model/read", read_model, name="read-model"),
    path("calculate/traffic/inline", views.inline_traffic, name="inline-traffic"),
    path("calculate/split-map", views.split_map, name="split-map"),
    path("calculate/split-map/inline", views.inline_map, name="inline-map"),
    path("runs/", runs.list_runs, name="runs"),
    path("runs/import", actions.import_runs, name="import-runs"),
    path("runs/compare", runs.compare_runs, name="compare"),
    path("runs/new", starting.new_run, name="new-run"),
    path("runs/new/forecast", starting.forecast, name="forecast"),
    path("runs/new/fields", starting.spec_fields, name="spec-fields"),
    path("runs/<int:run_id>/", runs.show_run, name="run"),
    path("runs/<int:run_id>/cancel", actions.cancel, name="cancel"),
    path("runs/<int:run_id>/again", actions.run_again, name="run-again"),
    path("runs/<int:run_id>/back", actions.put_back, name="put-back"),
    path("runs/<int:run_id>/delete", actions.delete, name="delete-run"),
    path("runs/<int:run_id>.json", runs.run_json, name="run-json"),
    path("runs/<int:run_id>.csv", runs.run_csv, name="run-csv"),
    path("runs/<int:run_id>.toml", runs.run_toml, name="run-toml"),
    path("experiments/", experiments.list_experiments, name="experiments"),
    path("experiments/<slug:name>/", experiments.show_experiment, name="experiment"),
    path("experiments/<slug:name>/run", experiments.run_experiment, name="run-experiment"),
]
