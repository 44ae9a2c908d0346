"""Addresses of the pages that belong to no other app: home and accounts."""

from django.urls import path

from tutor import views

app_name = "tutor"
urlpatterns = [
    path("", views.home, name="home"),
    path("enter", views.enter, name="enter"),
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("theme", views.theme, name="theme"),
]
