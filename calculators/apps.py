"""The Django app `calculators`: pages over `predict` and `lab`."""

from django.apps import AppConfig


class CalculatorsConfig(AppConfig):
    name = "calculators"
