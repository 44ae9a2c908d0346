"""`manage.py packs check [PATH …] [--json]` and `manage.py packs import [PATH …]`."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from quizzes.bank import builtin_folders, import_pack
from quizzes.packs import rules
from quizzes.packs.census import census
from quizzes.packs.checking import CheckedPack, check_pack
from quizzes.packs.findings import Finding, PackError


class Command(BaseCommand):
    help = "Check question packs, or import them into the bank."
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
        parser.add_argument("--json", action="store_true", help="check: print counts and findings as JSON")

    def handle(self, *args: Any, action: str, paths: list[Path], **options: Any) -> None:
        folders = paths or builtin_folders()
        if action == "import":
            refused = [folder for folder in folders if not self._import(folder)]
        else:
            refused = self._check(folders, as_json=options["json"])
        if refused:
            raise CommandError(f"{len(refused)} of {len(folders)} packs refused; nothing of them was stored.")

    def _check(self, folders: list[Path], *, as_json: bool) -> list[Path]:
        """Checks all packs, each and together; the folders of those that are refused."""
        checked: dict[Path, CheckedPack] = {}
        found: list[tuple[Path, Finding]] = []
        for folder in folders:
            try:
                checked[folder] = check_pack(folder)
                found += [(folder, finding) for finding in checked[folder].warnings]
            except PackError as error:
                found += [(folder, finding) for finding in error.findings]
        folder_of = {id(pack): folder for folder, pack in checked.items()}
        packs = list(checked.values())
        found += [(folder_of[id(pack)], finding) for pack, finding in rules.findings(packs)]
        if as_json:
            told = [(str(folder), finding) for folder, finding in found]
            self.stdout.write(json.dumps(census(packs, told), indent=2, ensure_ascii=False))
            return [folder for folder in folders if folder not in checked]
        for folder, finding in found:
            stream = self.stderr if finding.severity == "error" else self.stdout
            stream.write(f"{folder}/{finding}")
        for folder, pack in checked.items():
            doubts = sum(where == folder for where, _ in found)
            self.stdout.write(self.style.SUCCESS(self._summary(pack, doubts)))
        return [folder for folder in folders if folder not in checked]

    def _import(self, folder: Path) -> bool:
        try:
            checked = check_pack(folder)
            summary = str(import_pack(checked))
        except PackError as error:
            for finding in error.findings:
                self.stderr.write(f"{folder}/{finding}")
            return False
        for finding in checked.warnings:
            self.stdout.write(f"{folder}/{finding}")
        self.stdout.write(self.style.SUCCESS(summary))
        return True

    def _summary(self, checked: CheckedPack, warnings: int) -> str:
        doubts = f", {warnings} warning{'s' if warnings != 1 else ''}" if warnings else ""
        return f"{checked.header.title}: {len(checked.questions)} questions are in order{doubts}."
