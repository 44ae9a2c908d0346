"""Every address of the site, one app a line."""

from django.urls import include, path

urlpatterns = [
    path("", include("tutor.pages")),
    path("lessons/", include("tutor.lessons.urls")),
    path("practice/", include("quizzes.urls")),
    path("", include("calculators.urls")),
]
