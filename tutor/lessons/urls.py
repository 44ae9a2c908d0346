"""Addresses of the lessons pages."""

from django.urls import URLPattern

app_name = "lessons"
urlpatterns: list[URLPattern] = []
