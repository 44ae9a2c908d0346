"""What runs of the lab said of questions, and which word is the newest."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("quizzes", "0001_packs_questions_responses")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="Verification",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("run_id", models.PositiveIntegerField(help_text="in the run ledger")),
                ("device", models.CharField(help_text="where it ran", max_length=200)),
                ("measured_at", models.DateTimeField()),
                ("calculated", models.FloatField()),
                ("measured", models.FloatField()),
                (
                    "named",
                    models.FloatField(
                        default=0.0, help_text="seen beside the formula, with a name, and taken off"
                    ),
                ),
                ("unit", models.CharField(max_length=20)),
                ("agrees", models.BooleanField()),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="verifications",
                        to="quizzes.revision",
                    ),
                ),
            ],
            options={"ordering": ("revision", "run_id")},
        ),
        migrations.AddField(
            model_name="question",
            name="verification",
            field=models.ForeignKey(
                help_text="the newest run's word",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="quizzes.verification",
            ),
        ),
        migrations.AddConstraint(
            model_name="verification",
            constraint=models.UniqueConstraint(
                fields=("revision", "run_id"), name="one_verification_per_run"
            ),
        ),
    ]
