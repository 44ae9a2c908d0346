"""Pack files: every scalar stays as written, and no file, however hostile, gets far."""

import time

import pytest

from quizzes.packs.reading import MAX_FILE_BYTES, read_yaml


def read(raw):
    return read_yaml(raw if isinstance(raw, bytes) else raw.encode(), file="f.yaml")


def test_scalars_appear_as_written():
    document = read("options: [No, Yes, on, 1.10, 012, 12:30, null, ~, 1e3, 0x10, 2026-12-01]")

    assert document.value == {
        "options": ["No", "Yes", "on", "1.10", "012", "12:30", "null", "~", "1e3", "0x10", "2026-12-01"]
    }


def test_every_place_knows_its_line():
    document = read("- id: a\n  text: |\n    one\n    two\n- id: b\n")

    assert (document.line((0, "id")), document.line((1,)), document.line((1, "nothing"))) == (1, 5, 5)
    assert document.text_line((0, "text"), 2) == 4


def test_all_duplicate_keys_are_reported():
    document = read("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")

    assert [(f.line, f.rule) for f in document.findings] == [(4, "duplicate-key"), (5, "duplicate-key")]
    assert "first in line 1" in document.findings[1].message


def test_a_byte_order_mark_and_windows_line_ends_change_nothing():
    plain = read(b"a: |\n  one\n  two\nb: c\n")

    for raw in (
        b"\xef\xbb\xbfa: |\n  one\n  two\nb: c\n",
        b"a: |\r\n  one\r\n  two\r\nb: c\r\n",
        b"a: |\r  one\r  two\rb: c\r",
    ):
        assert read(raw).value == plain.value


@pytest.mark.parametrize(
    ("raw", "line", "reason"),
    [
        (b"a: 1\nb: caf\xe9\n", 2, "byte 0xe9 at offset 11"),
        (b"\xef\xbb\xbfa: \xff", 1, "at offset 6"),
        ("a: 1".encode("utf-16"), 1, "UTF-16"),
        (b"a: 1\nb: \x00", 2, "control character"),
        (b"", 1, "is empty"),
        (b"# nothing\n", 1, "is empty"),
        (b"a: b: c", 1, "not YAML"),
        (b"a: [1, 2\nb: 3", 2, "not YAML"),
        (b"\t- a", 1, "not YAML"),
        (b"a: &x 1\nb: *x\n", 1, "anchor &x"),
        (b"a: *x\n", 1, "alias *x"),
        (b"a: !!python/object/apply:os.system [x]", 1, "tag"),
        (b"a: !x 1", 1, "tag"),
        (b"a: 1\n---\nb: 2", 2, "second document"),
        (b"? [a]\n: 1", 1, "must be a word"),
        (b"{" * 300, 1, "nested more than 20"),
        (b"- " * 20_000, 1, "nested more than 20"),
        (b"[" * 20_000, 1, ""),
    ],
)
def test_a_hostile_or_broken_file_is_one_sentence_with_its_line(raw, line, reason):
    started = time.perf_counter()
    document = read(raw)

    assert document.findings[0].line == line
    assert reason in document.findings[0].message
    assert time.perf_counter() - started < 1


def test_a_thousand_laughs_are_not_even_built():
    bomb = "a: &a [x,x]\n" + "".join(
        f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )

    assert read(bomb).value is None


def test_a_file_that_is_too_large_is_not_parsed():
    assert "at most 8 MiB" in read(b"x" * (MAX_FILE_BYTES + 1)).findings[0].message


def test_a_file_with_too_many_parts_is_stopped():
    assert "more than 1,000,000 parts" in read(b"- a\n" * 1_000_010).findings[0].message
