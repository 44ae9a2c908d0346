"""From bytes to plain values: guarded YAML in which every scalar is a string and every value knows its line.

YAML is read by libyaml in two passes. The first streams events past a guard (size, depth, count, anchors,
tags, documents), so that no hostile file is ever built; the second composes nodes, from which we take the
strings, the lines and the duplicate keys ourselves. `No`, `1.10` and `012` stay what they look like.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from quizzes.packs.findings import Finding

MAX_FILE_BYTES = 8 * 2**20
MAX_DEPTH = 20
MAX_EVENTS = 1_000_000

Value = str | list["Value"] | dict[str, "Value"]
Place = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file: its value (None when it could not be read), the line of every place, and its defects."""

    file: str
    value: Value | None
    lines: dict[Place, int] = field(default_factory=dict)
    text_lines: dict[Place, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """The line of `place`, or of the nearest place around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def text_line(self, place: Place, line_in_text: int = 1) -> int:
        """The line of the file where line `line_in_text` of the text at `place` stands."""
        return self.text_lines.get(place, self.line(place)) + line_in_text - 1


def read_yaml(raw: bytes, *, file: str) -> Document:
    """The document in `raw`; its findings say what is wrong with it, and then the value may be None."""
    text, problem = decode(raw, file=file)
    if problem:
        return Document(file=file, value=None, findings=[problem])
    findings: list[Finding] = []
    try:
        if refused := next(_guard(text, file), None):
            return Document(file=file, value=None, findings=[refused])
        root = yaml.compose(text, Loader=yaml.CBaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        findings.append(_finding(file, mark.line + 1 if mark else 1, "yaml", f"This is not YAML: {reason}."))
        return Document(file=file, value=None, findings=findings)
    except yaml.YAMLError as error:  # a character that YAML does not allow, such as NUL
        position = getattr(error, "position", 0)
        line = len(text.encode()[:position].splitlines()) or 1
        findings.append(
            _finding(file, line, "yaml", "There is a control character here that YAML does not allow.")
        )
        return Document(file=file, value=None, findings=findings)
    if root is None:
        findings.append(_finding(file, 1, "empty", "The file is empty."))
        return Document(file=file, value=None, findings=findings)
    lines: dict[Place, int] = {}
    text_lines: dict[Place, int] = {}
    value = _value(root, (), file, lines, text_lines, findings)
    return Document(file=file, value=value, lines=lines, text_lines=text_lines, findings=findings)


def decode(raw: bytes, *, file: str) -> tuple[str, Finding | None]:
    """The text of a UTF-8 file with or without a byte order mark and with any line ends, or a finding."""
    if len(raw) > MAX_FILE_BYTES:
        size = f"{len(raw) / 2**20:.1f} MiB; at most {MAX_FILE_BYTES // 2**20} MiB are read"
        return "", _finding(file, 1, "size", f"The file has {size}. Split it into several files.")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "", _finding(file, 1, "encoding", "The file is UTF-16, not UTF-8. Save it as UTF-8.")
    try:
        text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + (3 if raw.startswith(b"\xef\xbb\xbf") else 0)
        line = raw.count(b"\n", 0, offset) + 1
        return "", _finding(
            file,
            line,
            "encoding",
            f"The file is not UTF-8: byte 0x{raw[offset]:02x} at offset {offset} cannot be read. "
            "It may be Latin-1 or Windows-1252; save it as UTF-8.",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n"), None


def _guard(text: str, file: str) -> Iterator[Finding]:
    """Every reason not to build this document, found while its events stream by."""
    depth = documents = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.CBaseLoader)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if count > MAX_EVENTS:
            yield _finding(file, line, "count", f"The file has more than {MAX_EVENTS:,} parts. Split it.")
        if isinstance(event, yaml.AliasEvent):
            yield _finding(file, line, "alias", f"The alias *{event.anchor} is not allowed. Write it out.")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                yield _finding(file, line, "documents", "A second document starts here (---). Keep one.")
        if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent):
            if getattr(event, "anchor", None):
                yield _finding(
                    file, line, "anchor", f"The anchor &{event.anchor} is not allowed. Write the value out."
                )
            if getattr(event, "tag", None):
                yield _finding(
                    file, line, "tag", f"The tag {event.tag} is not allowed. Quote text that starts with “!”."
                )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                yield _finding(file, line, "depth", f"This is nested more than {MAX_DEPTH} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _value(
    node: yaml.Node,
    place: Place,
    file: str,
    lines: dict[Place, int],
    text_lines: dict[Place, int],
    findings: list[Finding],
) -> Value:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        # A block scalar (| or >) starts on the line after its sign.
        block = getattr(node, "style", None) in ("|", ">")
        text_lines[place] = node.start_mark.line + (2 if block else 1)
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*place, index), file, lines, text_lines, findings)
            for index, item in enumerate(node.value)
        ]
    found: dict[str, Value] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            findings.append(_finding(file, line, "key", "A key must be a word, not a list or a mapping."))
            continue
        key = str(key_node.value)
        if key in found:
            first = lines[(*place, key)]
            findings.append(
                _finding(file, line, "duplicate-key", f"The key “{key}” stands twice; first in line {first}.")
            )
            continue
        lines[(*place, key)] = line
        found[key] = _value(value_node, (*place, key), file, lines, text_lines, findings)
    return found


def _finding(file: str, line: int, rule: str, message: str) -> Finding:
    return Finding(file=file, line=line, rule=rule, message=message)
