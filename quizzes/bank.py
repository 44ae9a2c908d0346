"""The bank of questions: checked packs go in, in one transaction, and queries come out by name.

Every query of the quizzes' tables stands here or, for answering, in `sessions`.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from quizzes.models import Misconception, Pack, Question, Revision, Serving
from quizzes.packs.checking import CheckedPack, CheckedQuestion, check_pack
from quizzes.packs.findings import Finding, PackError
from quizzes.packs.format import PackHeader

BUILTIN = Path(__file__).resolve().parent / "packs"
BUILTIN_ORDER = (
    "two-camps",
    "tp-or-pp",
    "sp-or-cp",
    "experts",
    "data",
    "combine-and-place",
    "bytes",
    "home-cluster",
    "exam-or-practice",
)
"""The packs that come with the site, as a learner meets them; any other follows."""
log = logging.getLogger(__name__)

Learner = User | AnonymousUser


# --- packs in -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What an import did, by question id."""

    pack: Pack
    new: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return len(self.new) + len(self.changed) + len(self.retired)

    def __str__(self) -> str:
        counts = (
            f"{len(self.new)} new, {len(self.changed)} changed, {len(self.unchanged)} unchanged, "
            f"{len(self.retired)} retired"
        )
        return f"{self.pack.title} ({self.pack}): {counts}"


def builtin_folders() -> list[Path]:
    """The folders of the packs that come with the site, in the order in which pages show them."""
    folders = {path.parent.name: path.parent for path in BUILTIN.glob("*/pack.yaml")}
    known = [folders.pop(name) for name in BUILTIN_ORDER if name in folders]
    return known + [folders[name] for name in sorted(folders)]


@contextmanager
def _left_as_it_was(name: str) -> Iterator[None]:
    """A pack that is broken is logged, and the others go on."""
    try:
        yield
    except PackError as error:
        log.error("The pack %s is left as it was:\n%s", name, error)


def load_builtin_packs() -> list[ImportReport]:
    """Brings every pack that comes with the site up to date; one that is broken is logged and left out."""
    reports = []
    checked: list[tuple[int, CheckedPack]] = []
    for position, folder in enumerate(builtin_folders()):
        with _left_as_it_was(folder.name):
            checked.append((position, check_pack(folder)))
    for _, pack in checked:  # first, since they may borrow from each other
        _store_misconceptions(pack.header)
    for position, pack in checked:
        with _left_as_it_was(pack.header.id):
            reports.append(import_pack(pack, position=position))
    return reports


@transaction.atomic
def import_pack(checked: CheckedPack, *, position: int = 0) -> ImportReport:
    """Stores a checked pack: all of it or, on any error, nothing.

    A changed question gets a new revision; one that is gone is retired and keeps its answers. The same pack
    again changes nothing. Raises PackError when an id comes back with another type.
    """
    _refuse_unknown_lender(checked.header)
    pack = _store_header(checked.header, position)
    _store_misconceptions(checked.header)
    stored = {q.slug: q for q in Question.objects.filter(pack=pack).select_related("revision")}
    _refuse_changed_types(checked.questions, stored)
    report = ImportReport(pack=pack)

    fresh: list[tuple[Question, CheckedQuestion]] = []
    for place, incoming in enumerate(checked.questions):
        revised = False
        question = stored.get(incoming.content.id)
        if question is None:
            question = Question(pack=pack, slug=incoming.content.id, type=incoming.content.type)
            report.new.append(question.slug)
            fresh.append((question, incoming))
        elif question.revision is None or question.revision.digest != incoming.digest:
            before = question.revision.content if question.revision else {}
            report.changed[question.slug] = _changed_fields(before, incoming.meaning)
            question.revision, revised = _revision(question, incoming), True
        else:
            report.unchanged.append(question.slug)
        _update(question, place, incoming, revised=revised)
    _create(fresh)

    incoming_ids = {incoming.content.id for incoming in checked.questions}
    gone = [q for q in stored.values() if q.slug not in incoming_ids and q.status != Question.Status.RETIRED]
    report.retired.extend(sorted(question.slug for question in gone))
    Question.objects.filter(pk__in=[q.pk for q in gone]).update(status=Question.Status.RETIRED)
    return report


def _store_header(header: PackHeader, position: int) -> Pack:
    data = header.model_dump(mode="json", exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    pack = Pack.objects.select_for_update().filter(publisher=header.publisher, slug=header.id).first()
    if pack and pack.header_digest == digest and pack.position == position:
        return pack
    if pack is None:
        pack = Pack(publisher=header.publisher, slug=header.id, address=_free_address(header))
    pack.title, pack.summary, pack.version = header.title, header.summary, header.version
    pack.language, pack.license = header.language, header.license
    pack.header, pack.header_digest, pack.position = data, digest, position
    pack.imported_at = timezone.now()
    pack.save()
    return pack


def _free_address(header: PackHeader) -> str:
    """The pack's id, or with the publisher's behind it when another pack was there first."""
    plain = header.id.replace(".", "-")
    taken = Pack.objects.filter(address=plain).exists() or plain in RESERVED
    return f"{plain}-{header.publisher}".replace(".", "-") if taken else plain


RESERVED = frozenset({"review", "exam", "answers", "packs", "misconceptions"})  # pages of later issues


def _store_misconceptions(header: PackHeader) -> None:
    stored = {m.slug: m for m in Misconception.objects.filter(publisher=header.publisher)}
    for belief in header.misconceptions:
        wanted = {
            "name": belief.name,
            "tell": belief.tell,
            "refutation": belief.refutation,
            "lessons": list(belief.lessons),
            "labs": list(belief.labs),
        }
        row = stored.get(belief.id) or Misconception(publisher=header.publisher, slug=belief.id)
        if row.pk is None or any(getattr(row, name) != value for name, value in wanted.items()):
            for name, value in wanted.items():
                setattr(row, name, value)
            row.save()


def _refuse_unknown_lender(header: PackHeader) -> None:
    declared = Misconception.objects.filter(publisher=header.publisher).values_list("slug", flat=True)
    if missing := sorted(set(header.borrows) - set(declared)):
        raise PackError(
            [
                Finding(
                    file="pack.yaml",
                    line=1,
                    rule="borrows",
                    message=f"No pack of {header.publisher} in the bank declares the misconception {name}. Import "
                    "its pack first, or declare it here.",
                )
                for name in missing
            ]
        )


def _refuse_changed_types(incoming: Iterable[CheckedQuestion], stored: dict[str, Question]) -> None:
    findings = [
        Finding(
            file=question.file,
            line=question.line,
            rule="type-change",
            message=f"{question.content.id} was {before.type} and is now {question.content.type}. "
            "Answers to it would change their meaning; give the new question a new id.",
        )
        for question in incoming
        if (before := stored.get(question.content.id)) and before.type != question.content.type
    ]
    if findings:
        raise PackError(findings)


def _revision(question: Question, incoming: CheckedQuestion) -> Revision:
    """The revision with this meaning: the old one when the author went back, else the next."""
    if earlier := question.revisions.filter(digest=incoming.digest).first():
        return earlier
    number = (question.revisions.aggregate(last=Max("number"))["last"] or 0) + 1
    return question.revisions.create(digest=incoming.digest, number=number, content=incoming.meaning)


def _update(question: Question, place: int, incoming: CheckedQuestion, *, revised: bool) -> None:
    content = incoming.content
    about = {name: value for name, value in content.about().items() if name not in ("id", "status", "title")}
    wanted = {"status": content.status, "position": place, "title": content.title, "about": about}
    differs = any(getattr(question, name) != value for name, value in wanted.items())
    for name, value in wanted.items():
        setattr(question, name, value)
    if question.pk and (revised or differs):
        question.save()


def _create(fresh: list[tuple[Question, CheckedQuestion]]) -> None:
    Question.objects.bulk_create(question for question, _ in fresh)
    revisions = Revision.objects.bulk_create(
        Revision(question=question, digest=incoming.digest, number=1, content=incoming.meaning)
        for question, incoming in fresh
    )
    for (question, _), revision in zip(fresh, revisions, strict=True):
        question.revision = revision
    Question.objects.bulk_update([question for question, _ in fresh], ["revision"], batch_size=500)


def _changed_fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


# --- questions out ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PackProgress:
    """A pack and how much of it a learner has met."""

    pack: Pack
    questions: int
    seen: int

    @property
    def complete(self) -> bool:
        return self.questions > 0 and self.seen == self.questions


def packs_with_progress(learner: Learner) -> list[PackProgress]:
    """Every pack with live questions, in order, with the count of those the learner has answered."""
    live = Q(questions__status=Question.Status.LIVE)
    counted = Pack.objects.annotate(live=Count("questions", filter=live, distinct=True)).filter(live__gt=0)
    packs = counted.order_by("position", "title")  # a model's own order is not kept where rows are grouped
    seen: dict[int, int] = {}
    if learner.is_authenticated:
        answered = _answered(learner).values("pack").annotate(count=Count("pk", distinct=True))
        seen = dict(answered.values_list("pack", "count"))
    return [PackProgress(pack=pack, questions=pack.live, seen=seen.get(pack.pk, 0)) for pack in packs]


def progress(learner: Learner, pack: Pack) -> PackProgress:
    """One pack's progress."""
    own = Q(revisions__responses__learner_id=learner.pk)
    counts = live_questions(pack).aggregate(
        questions=Count("pk", distinct=True), seen=Count("pk", distinct=True, filter=own)
    )
    return PackProgress(pack=pack, **counts)


def pack_at(address: str) -> Pack | None:
    return Pack.objects.filter(address=address).first()


def question_at(pack: str, slug: str) -> Question | None:
    """A question that may be shown, with its pack and current revision."""
    return questions_at([(pack, slug)]).get((pack, slug))


def questions_at(places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Question]:
    """Those of the questions at (pack, id) that may be shown."""
    wanted = set(places)
    found = Question.objects.select_related("pack", "revision").filter(
        pack__address__in={pack for pack, _ in wanted},
        slug__in={slug for _, slug in wanted},
        status=Question.Status.LIVE,
        revision__isnull=False,
    )
    by_place = {(question.pack.address, question.slug): question for question in found}
    return {place: by_place[place] for place in wanted & by_place.keys()}


def live_questions(pack: Pack) -> QuerySet[Question]:
    return Question.objects.filter(pack=pack, status=Question.Status.LIVE)


def open_serving(learner: User, pack: Pack) -> Serving | None:
    """The question of this pack that the learner looked at last and has not answered."""
    return (
        Serving.objects.select_related("question__pack")
        .filter(learner=learner, closed_at=None, question__pack=pack, question__status=Question.Status.LIVE)
        .order_by("-served_at", "-pk")
        .first()
    )


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """How often and when a learner last answered a question."""

    question_id: int
    count: int
    last: datetime | None


def attempts(learner: User, pack: Pack) -> list[Attempts]:
    """Every live question of the pack with this learner's attempts at it."""
    own = Q(revisions__responses__learner=learner)
    rows = (
        live_questions(pack)
        .order_by("position")
        .annotate(
            count=Count("revisions__responses", filter=own),
            last=Max("revisions__responses__answered_at", filter=own),
        )
        .values_list("pk", "count", "last")
    )
    return [Attempts(question_id=pk, count=count, last=last) for pk, count, last in rows]


def question_by_id(question_id: int) -> Question:
    return Question.objects.select_related("pack", "revision").get(pk=question_id)


def misconception(publisher: str, slug: str) -> Misconception | None:
    return Misconception.objects.filter(publisher=publisher, slug=slug).first()


def misconceptions(publisher: str, slugs: Iterable[str]) -> dict[str, Misconception]:
    """The named beliefs of a publisher, by id."""
    wanted = list(slugs)
    if not wanted:
        return {}
    return {m.slug: m for m in Misconception.objects.filter(publisher=publisher, slug__in=wanted)}


def _answered(learner: Learner) -> QuerySet[Question]:
    return Question.objects.filter(status=Question.Status.LIVE, revisions__responses__learner_id=learner.pk)


def questions_by_tag() -> dict[str, list[int]]:
    """The keys of the live questions of every tag, pack by pack in their order."""
    found: dict[str, list[int]] = {}
    live = Question.objects.filter(status=Question.Status.LIVE).order_by("pack__position", "position")
    for key, tags in live.values_list("pk", "about__tags"):  # the tags alone: the rest of it is long
        for tag in tags or ():
            found.setdefault(tag, []).append(key)
    return found


def questions_of(keys: Sequence[int]) -> list[Question]:
    """These questions with their packs, in this order."""
    found = Question.objects.select_related("pack").in_bulk(list(keys))
    return [found[key] for key in keys if key in found]


def disputed_questions() -> list[Question]:
    """Questions that a measurement speaks against, for whoever answers for them."""
    return list(Question.objects.disputed().select_related("pack", "verification"))
