"""The glossary file: terms with one meaning each."""

import pytest
from django.conf import settings

from tutor.lessons.defects import LessonError
from tutor.lessons.glossary import read_glossary

# DESIGN's words and the six families; every one must have its entry.
WORDS = {
    "family", "data-parallelism", "tensor-parallelism", "pipeline-parallelism",
    "sequence-parallelism", "context-parallelism", "expert-parallelism", "layout", "rank", "group",
    "host", "link", "rung", "stage", "micro-batch", "chunk", "call", "round", "handed", "full-size",
    "wire", "predicted", "measured", "spec", "plan", "run", "measurement", "ledger", "pack",
    "question", "revision", "option", "misconception", "cue", "minimal-pair", "attempt", "response",
    "framing", "control", "backend-excess", "unexplained", "formula", "experiment", "all-reduce",
    "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send", "bubble", "boundary",
    "decode", "prefill",
}  # fmt: skip


def test_every_word_of_the_house_is_explained():
    glossary = read_glossary(settings.BASE_DIR / "docs" / "glossary.md")

    assert sorted(WORDS - glossary.terms.keys()) == []


def test_a_meaning_is_one_plain_sentence_short_enough_to_show_beside_a_word():
    glossary = read_glossary(settings.BASE_DIR / "docs" / "glossary.md")

    for term in glossary.terms.values():
        assert term.meaning.endswith("."), term.name
        assert len(term.meaning) <= 140, term.name


def test_the_first_paragraph_is_the_meaning_and_the_rest_follows(tmp_path):
    path = tmp_path / "glossary.md"
    path.write_text("# Words\n\nAll of them.\n\n## Counting\n\n### full size\nThe *whole* tensor.\n\nMore.\n")

    glossary = read_glossary(path)

    term = glossary.terms["full-size"]
    assert (term.name, term.meaning) == ("full size", "The whole tensor.")
    assert "<em>whole</em>" in term.definition
    assert "More." in term.more
    assert "All of them." in glossary.introduction
    assert [section.name for section in glossary.sections] == ["Counting"]


def test_every_defect_of_the_glossary_is_named_with_its_line(tmp_path):
    path = tmp_path / "glossary.md"
    path.write_text("### early\nToo soon.\n\n## Section\n\nStray.\n\n### call\n\n### Call\nAgain.\n")

    with pytest.raises(LessonError) as refused:
        read_glossary(path)

    assert str(refused.value).splitlines() == [
        "glossary.md, line 1: The term early stands before any section. Add a ## heading.",
        "glossary.md, line 4: The section Section has text before its first term. Move it.",
        "glossary.md, line 8: The term call has no meaning. Write one sentence below it.",
        "glossary.md, line 10: The term Call is already explained on line 8. Keep one.",
    ]
