"""Every address of the site, one app a line."""

from django.urls import include, path

from tutor.lessons.views import cheat_sheet, glossary

urlpatterns = [
    path("", include("tutor.pages")),
    path("lessons/", include("tutor.lessons.urls")),
    path("glossary/", glossary, name="glossary"),
    path("cheat-sheet/", cheat_sheet, name="cheat-sheet"),
    path("practice/", include("quizzes.urls")),
    path("", include("calculators.urls")),
]
