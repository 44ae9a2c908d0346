"""Addresses of the quizzes pages."""

from django.urls import path

from quizzes import views

app_name = "quizzes"
urlpatterns = [
    path("", views.index, name="index"),
    path("by-subject/<slug:tag>/", views.subject, name="subject"),
    path("<slug:pack>/", views.pack, name="pack"),
    path("<slug:pack>/<str:slug>/", views.question, name="question"),
    path("<slug:pack>/<str:slug>/answer", views.answer, name="answer"),
    path("<slug:pack>/<str:slug>/answered/<uuid:nonce>/", views.answered, name="answered"),
]
