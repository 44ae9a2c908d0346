"""`manage.py packs check PATH` and `manage.py packs import PATH`."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from quizzes.bank import builtin_folders, import_pack
from quizzes.packs.checking import CheckedPack, check_pack
from quizzes.packs.findings import PackError


class Command(BaseCommand):
    help = "Check a question pack, or import it into the bank."
    requires_system_checks = ()  # a pack is checked whatever the state of the pages

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=("check", "import"))
        parser.add_argument(
            "paths",
            nargs="*",
            type=Path,
            metavar="PATH",
            help="folders with a pack.yaml; the packs that come with the site if none is given",
        )

    def handle(self, *args: Any, action: str, paths: list[Path], **options: Any) -> None:
        folders = paths or builtin_folders()
        refused = [folder for folder in folders if not self._pack(folder, store=action == "import")]
        if refused:
            raise CommandError(f"{len(refused)} of {len(folders)} packs refused; nothing of them was stored.")

    def _pack(self, folder: Path, *, store: bool) -> bool:
        try:
            checked = check_pack(folder)
            summary = str(import_pack(checked)) if store else self._summary(checked)
        except PackError as error:
            for finding in error.findings:
                self.stderr.write(f"{folder}/{finding}")
            return False
        for finding in checked.warnings:
            self.stdout.write(f"{folder}/{finding}")
        self.stdout.write(self.style.SUCCESS(summary))
        return True

    def _summary(self, checked: CheckedPack) -> str:
        warnings = len(checked.warnings)
        doubts = f", {warnings} warning{'s' if warnings != 1 else ''}" if warnings else ""
        return f"{checked.header.title}: {len(checked.questions)} questions are in order{doubts}."
