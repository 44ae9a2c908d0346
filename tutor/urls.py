"""Every address of the site, one app a line."""

from django.urls import include, path

from tutor.lessons.views import glossary

urlpatterns = [
    path("", include("tutor.pages")),
    path("lessons/", include("tutor.lessons.urls")),
    path("glossary/", glossary, name="glossary"),
    path("practice/", include("quizzes.urls")),
    path("", include("calculators.urls")),
]
