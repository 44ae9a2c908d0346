"""Addresses of the calculators pages."""

from django.urls import URLPattern

app_name = "calculators"
urlpatterns: list[URLPattern] = []
