"""Addresses of the lessons pages."""

from django.urls import path

from tutor.lessons import views

app_name = "lessons"
urlpatterns = [
    path("", views.index, name="index"),
    path("<slug:slug>/", views.lesson, name="lesson"),
    path("<slug:slug>/read", views.read, name="read"),
]
