"""What is stored about lessons: which of them somebody has read."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class Reading(models.Model):
    """A lesson that somebody has read to its end, and said so."""

    learner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="readings")
    lesson = models.CharField(max_length=80, help_text="its slug")
    read_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("read_at",)
        constraints = (models.UniqueConstraint(fields=("learner", "lesson"), name="one_reading_per_lesson"),)

    def __str__(self) -> str:
        return f"{self.learner} read {self.lesson}"
