"""What is stored: packs, questions, their immutable revisions, questions as served, and responses."""

import uuid
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from quizzes.questions import AnyQuestion, from_meaning


class Pack(models.Model):
    """A set of questions with one publisher, as last imported."""

    publisher = models.CharField(max_length=80)
    slug = models.CharField(max_length=80)
    # In the address of its pages. The slug, unless another publisher's pack had it first.
    address = models.SlugField(max_length=170, unique=True)
    title = models.TextField()
    summary = models.TextField(blank=True)
    version = models.CharField(max_length=80)
    language = models.CharField(max_length=40)
    license = models.CharField(max_length=200)
    header = models.JSONField(help_text="pack.yaml as it was read")
    header_digest = models.CharField(max_length=64)
    position = models.PositiveIntegerField(default=0)
    imported_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("position", "title")
        constraints = (
            models.UniqueConstraint(fields=("publisher", "slug"), name="one_pack_per_publisher_id"),
        )

    def __str__(self) -> str:
        return f"{self.publisher}/{self.slug}"


class Misconception(models.Model):
    """A wrong belief. Its identity is the publisher's, so that several packs can ask about the same one."""

    publisher = models.CharField(max_length=80)
    slug = models.CharField(max_length=80)
    name = models.TextField()
    tell = models.TextField(blank=True)
    refutation = models.TextField()
    lessons = models.JSONField(default=list)
    labs = models.JSONField(default=list)

    class Meta:
        ordering = ("publisher", "slug")
        constraints = (
            models.UniqueConstraint(fields=("publisher", "slug"), name="one_misconception_per_id"),
        )

    def __str__(self) -> str:
        return self.slug


class QuestionQuerySet(models.QuerySet["Question"]):
    """Questions by what may be done with them."""

    def disputed(self) -> Self:
        """Those whose newest measurement does not agree with the calculator."""
        return self.filter(verification__agrees=False)

    def examinable(self) -> Self:
        """Those that an exam may draw: live, and not disputed by a measurement."""
        return self.filter(status=Question.Status.LIVE).exclude(verification__agrees=False)


class Question(models.Model):
    """A question's identity in its pack. What it says is in its revisions."""

    class Status(models.TextChoices):
        DRAFT = "draft"
        LIVE = "live"
        RETIRED = "retired"

    pack = models.ForeignKey(Pack, on_delete=models.PROTECT, related_name="questions")
    slug = models.CharField(max_length=80)
    type = models.CharField(max_length=20)
    status = models.CharField(max_length=10, choices=Status)
    position = models.PositiveIntegerField()
    title = models.TextField(blank=True)
    about = models.JSONField(default=dict, help_text="objectives, tags, level, pair, facts, tests")
    revision = models.ForeignKey(
        "Revision", on_delete=models.PROTECT, related_name="+", null=True, help_text="the one shown now"
    )
    verification = models.ForeignKey(
        "Verification",
        on_delete=models.SET_NULL,
        related_name="+",
        null=True,
        help_text="the newest run's word",
    )

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ("pack", "position")
        constraints = (models.UniqueConstraint(fields=("pack", "slug"), name="one_question_per_id"),)

    def __str__(self) -> str:
        return self.slug

    @property
    def reference(self) -> str:
        """How lessons and other packs name it."""
        return f"{self.pack.address}/{self.slug}"

    @property
    def is_disputed(self) -> bool:
        """Whether the newest measurement does not agree with the calculator."""
        return self.verification is not None and not self.verification.agrees


class Revision(models.Model):
    """What a question said and how it was marked at one time. Never changes, never goes."""

    question = models.ForeignKey(Question, on_delete=models.PROTECT, related_name="revisions")
    digest = models.CharField(max_length=64)
    number = models.PositiveIntegerField()
    content = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("question", "number")
        constraints = (
            models.UniqueConstraint(fields=("question", "digest"), name="one_revision_per_meaning"),
            models.UniqueConstraint(fields=("question", "number"), name="one_revision_per_number"),
        )

    def __str__(self) -> str:
        return f"{self.question} r{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("A revision never changes; store a new one.")
        super().save(*args, **kwargs)

    def parsed(self) -> AnyQuestion:
        """The content as a question that can be drawn and marked."""
        return from_meaning(self.content, slug=self.question.slug)


class Verification(models.Model):
    """What one run of the lab said about one revision of a question: the calculator's value, and the measured one."""

    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="verifications")
    run_id = models.PositiveIntegerField(help_text="in the run ledger")
    device = models.CharField(max_length=200, help_text="where it ran")
    measured_at = models.DateTimeField()
    calculated = models.FloatField()
    measured = models.FloatField()
    named = models.FloatField(default=0.0, help_text="seen beside the formula, with a name, and taken off")
    unit = models.CharField(max_length=20)
    agrees = models.BooleanField()

    class Meta:
        ordering = ("revision", "run_id")
        constraints = (
            models.UniqueConstraint(fields=("revision", "run_id"), name="one_verification_per_run"),
        )

    def __str__(self) -> str:
        return f"{self.revision}: run {self.run_id} {'agrees' if self.agrees else 'does not agree'}"

    @property
    def difference(self) -> float | None:
        """Measured beyond calculated, as a share of calculated; None where that is 0."""
        return self.measured / self.calculated - 1 if self.calculated else None


class Serving(models.Model):
    """A question as it was put before one learner: its numbers and order are fixed before the answer."""

    learner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="servings")
    question = models.ForeignKey(Question, on_delete=models.PROTECT, related_name="servings")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="servings")
    params = models.JSONField(default=dict)
    option_ids = models.JSONField(default=list, help_text="in the order shown")
    nonce = models.UUIDField(default=uuid.uuid4, unique=True)
    served_at = models.DateTimeField(default=timezone.now)
    # Answered, or replaced because the question has a newer revision.
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("learner", "question"), condition=Q(closed_at=None), name="one_open_serving"
            ),
        )

    def __str__(self) -> str:
        return f"{self.question} for {self.learner}"


class Response(models.Model):
    """One answer, with everything that is needed to understand and mark it again."""

    class Confidence(models.TextChoices):
        GUESS = "guess"
        UNSURE = "unsure"
        SURE = "sure"

    learner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="responses")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="responses")
    shown_option_ids = models.JSONField(default=list)
    chosen_option_ids = models.JSONField(default=list)
    params = models.JSONField(default=dict)
    raw_answer_text = models.TextField(blank=True)
    parsed_value = models.FloatField(null=True)
    credit = models.FloatField()
    misconception = models.ForeignKey(
        Misconception, on_delete=models.PROTECT, related_name="responses", null=True, blank=True
    )
    confidence = models.CharField(max_length=10, choices=Confidence, null=True, blank=True)  # noqa: DJ001
    first_attempt = models.BooleanField()
    client_nonce = models.UUIDField(unique=True)
    answered_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = (models.Index(fields=("learner", "revision")),)
        constraints = (
            models.CheckConstraint(condition=Q(credit__gte=0, credit__lte=1), name="credit_from_0_to_1"),
        )

    def __str__(self) -> str:
        return f"{self.learner}: {self.revision}"

    @property
    def right(self) -> bool:
        return self.credit == 1
