"""Addresses of the calculator and run pages."""

from django.urls import path

from calculators import views
from calculators.pages import CALCULATORS
from calculators.pages.model.pasted import read_model

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
    path("runs/", views.run_list, name="runs"),
    path("runs/new", views.new_run, name="new-run"),
    path("runs/new/forecast", views.forecast, name="forecast"),
    path("runs/<int:run_id>/", views.run, name="run"),
    path("runs/<int:run_id>/cancel", views.cancel, name="cancel"),
    path("runs/<int:run_id>.json", views.run_json, name="run-json"),
    path("runs/<int:run_id>.csv", views.run_csv, name="run-csv"),
    path("runs/<int:run_id>.toml", views.run_toml, name="run-toml"),
]
