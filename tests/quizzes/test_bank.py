"""Importing: one transaction, revisions by meaning, and nothing lost."""

import io

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.management import CommandError, call_command

from quizzes.bank import import_pack, load_builtin_packs, packs_with_progress
from quizzes.models import Misconception, Pack, Question, Revision
from quizzes.packs.checking import check_pack
from quizzes.packs.findings import PackError
from tests.quizzes.conftest import HEADER, QUESTIONS, TINY, post, served

pytestmark = pytest.mark.django_db


def bring(write_pack, questions=QUESTIONS, **kwargs):
    return import_pack(check_pack(write_pack(questions, **kwargs)))


def edited(*replacements):
    """The tiny pack's questions with each text replaced once."""
    text = QUESTIONS
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def test_the_same_pack_again_changes_nothing(write_pack, django_assert_max_num_queries):
    first = bring(write_pack)
    rows = list(Revision.objects.values()), list(Question.objects.values()), list(Pack.objects.values())

    with django_assert_max_num_queries(8):
        again = bring(write_pack)

    assert (len(first.new), again.changes, len(again.unchanged)) == (3, 0, 3)
    assert rows == (
        list(Revision.objects.values()),
        list(Question.objects.values()),
        list(Pack.objects.values()),
    )


def test_line_ends_do_not_make_a_new_revision(write_pack):
    bring(write_pack)

    again = bring(write_pack, QUESTIONS.replace("\n", "\r\n").encode())

    assert again.changes == 0


def test_one_word_makes_one_new_revision(write_pack):
    bring(write_pack)

    report = bring(write_pack, QUESTIONS.replace("whole layers", "entire layers"))

    assert report.changed == {"too-wide": ["choices"]}
    assert [r.number for r in Question.objects.get(slug="too-wide").revisions.all()] == [1, 2]
    assert Question.objects.get(slug="too-wide").revision.number == 2


def test_going_back_takes_the_old_revision_up_again(write_pack):
    bring(write_pack)
    bring(write_pack, QUESTIONS.replace("whole layers", "entire layers"))

    bring(write_pack)

    question = Question.objects.get(slug="too-wide")
    assert (question.revision.number, question.revisions.count()) == (1, 2)


def test_a_question_that_is_gone_is_retired_and_can_return(write_pack, signed_in):
    bring(write_pack)
    one = QUESTIONS.split("- id: which-send")[0]

    gone = bring(write_pack, one)
    page = signed_in.get("/practice/tiny/which-send/")
    back = bring(write_pack)

    assert (gone.retired, page.status_code) == (["which-send"], 404)
    assert "which-send" in back.unchanged
    assert Question.objects.get(slug="which-send").status == "live"


def test_an_id_with_another_type_is_refused_whole(write_pack):
    bring(write_pack)
    changed = edited(
        ("type: multiple", "type: single"),
        ("whole layers", "entire layers"),
        ('choose: [key-a, key-c], credit: "1"', 'choose: [key-a], credit: "1"'),
        ('    - {choose: [key-a], credit: "0"}\n', ""),
        ("choose: [key-a, opt-b]", "choose: [opt-b]"),
    )

    with pytest.raises(PackError, match=r"basics\.yaml:\d+: which-send was multiple and is now single"):
        bring(write_pack, changed)

    assert Question.objects.get(slug="too-wide").revision.number == 1


def test_a_failure_halfway_stores_nothing(write_pack, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the power is gone")

    monkeypatch.setattr(Revision.objects, "bulk_create", fail)
    with pytest.raises(RuntimeError):
        bring(write_pack)

    assert not (Pack.objects.exists())
    assert not (Question.objects.exists())
    assert not (Misconception.objects.exists())


def test_two_packs_may_use_the_same_question_id(write_pack):
    bring(write_pack)

    bring(write_pack, header=HEADER.replace("id: tiny", "id: other"), name="other")
    bring(write_pack, header=HEADER.replace("publisher: tests", "publisher: elsewhere"), name="third")

    assert Question.objects.filter(slug="too-wide").count() == 3
    assert set(Pack.objects.values_list("address", flat=True)) == {"tiny", "other", "tiny-elsewhere"}


def test_a_revision_never_changes(tiny):
    revision = Revision.objects.first()

    with pytest.raises(TypeError, match="never changes"):
        revision.save()


def test_an_old_answer_keeps_the_question_it_answered(write_pack, signed_in, learner):
    bring(write_pack)
    serving = served(signed_in)
    post(signed_in, serving, choice="opt-pp")
    changed = edited(
        ('text: "Tensor parallelism", credit: "1"', 'text: "Tensor parallelism"'),
        (
            'opt-pp, text: "Pipeline parallelism", misconception: splits-a-layer',
            'opt-x, text: Sharding, credit: "1"',
        ),
        ("choose: [key-tp]", "choose: [opt-x]"),
        ('    - {choose: [opt-pp], credit: "0", misconception: splits-a-layer}\n', ""),
    )

    report = bring(write_pack, changed)
    page = signed_in.get(f"/practice/tiny/too-wide/answered/{serving.nonce}/").content.decode()

    assert list(report.changed) == ["too-wide"]
    assert "Not this one." in page
    assert "Pipeline parallelism" in page
    assert "Sharding" not in page
    assert learner.responses.get().credit == 0


def test_an_open_question_follows_its_author(write_pack, signed_in):
    bring(write_pack)
    before = served(signed_in)
    bring(write_pack, QUESTIONS.replace("whole layers", "entire layers"))

    after = served(signed_in)
    late = post(signed_in, before, choice="key-tp")

    assert (before.revision.number, after.revision.number) == (1, 2)
    assert late.status_code == 303  # the answer to what was shown still counts, at its own revision


def test_the_command_checks_and_imports(capsys):
    out = io.StringIO()

    call_command("packs", "check", str(TINY), stdout=out)
    call_command("packs", "import", str(TINY), stdout=out)

    assert "A tiny pack: 3 questions are in order, 3 warnings." in out.getvalue()
    assert "3 new, 0 changed, 0 unchanged, 0 retired" in out.getvalue()


def test_the_command_prints_every_defect_and_stores_nothing(write_pack):
    err = io.StringIO()
    folder = write_pack(QUESTIONS.replace("type: multiple", "type: essay").replace('rtol: "0.02", ', ""))

    with pytest.raises(CommandError, match="1 of 1 packs refused"):
        call_command("packs", "import", str(folder), stdout=io.StringIO(), stderr=err)

    assert err.getvalue().count("questions/basics.yaml:") == 2
    assert not Pack.objects.exists()


def test_the_built_in_packs_are_in_order_and_load_once():
    first, again = load_builtin_packs(), load_builtin_packs()

    assert {report.pack.slug for report in first} >= {"tp-or-pp"}
    assert sum(report.changes for report in again) == 0
    assert Question.objects.filter(pack__slug="tp-or-pp", status="live").count() >= 12


def test_a_broken_built_in_pack_leaves_the_others_working(write_pack, monkeypatch, caplog):
    folder = write_pack("- id: x")
    monkeypatch.setattr("quizzes.bank.BUILTIN", folder.parent)

    assert load_builtin_packs() == []
    assert "The question has no type" in caplog.text


def test_a_pack_that_borrows_what_nobody_declares_is_refused_with_the_reason(write_pack):
    folder = write_pack(header=HEADER + "borrows: [never-heard-of]\n")

    with pytest.raises(PackError, match=r"declares the misconception never-heard-of\. Import its pack first"):
        import_pack(check_pack(folder))
    assert not Pack.objects.exists()


def test_two_packs_that_come_with_the_site_may_borrow_from_each_other(write_pack, monkeypatch):
    one = HEADER + "borrows: [theirs]\n"
    other = (
        one.replace("id: tiny", "id: other")
        .replace("splits-a-layer", "theirs")
        .replace("[theirs]", "[splits-a-layer]")
    )
    questions = QUESTIONS.replace("splits-a-layer", "theirs")
    folder = write_pack(header=one, name="one")
    write_pack(questions, header=other, name="other")
    monkeypatch.setattr("quizzes.bank.BUILTIN", folder.parent)

    assert [report.pack.slug for report in load_builtin_packs()] == ["tiny", "other"]


def test_packs_are_listed_in_the_order_in_which_they_came(write_pack, django_user_model):
    for position, name in enumerate(("zebra", "ant", "mole")):
        header = HEADER.replace("id: tiny", f"id: {name}").replace("A tiny pack", name)
        import_pack(check_pack(write_pack(header=header, name=name)), position=position)

    for learner in (AnonymousUser(), django_user_model.objects.create_user("ada")):
        assert [progress.pack.slug for progress in packs_with_progress(learner)] == ["zebra", "ant", "mole"]
