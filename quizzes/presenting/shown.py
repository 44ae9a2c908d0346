"""What pages show of a question, before the answer and after it.

`ShownQuestion` holds no key, no feedback and no cue: a template that gets one cannot leak what is not there.
"""

from dataclasses import dataclass, field

from django.utils.safestring import SafeString

from quizzes.presenting.maps import Drawn


@dataclass(frozen=True, kw_only=True)
class ShownOption:
    """An option before the answer; `chosen` keeps what was ticked when the form comes back."""

    id: str
    html: SafeString
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a row of a form can be given."""

    value: str
    words: str
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """One item or step, and a list to choose from; `open` where the last try left it so."""

    id: str
    html: SafeString
    entries: list[Entry]
    open: bool


@dataclass(frozen=True, kw_only=True)
class Form:
    """What an answer is given with: options, rows, or else a field for a number."""

    options: list[ShownOption] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    unit: str = ""

    @property
    def first_open(self) -> str:
        """The row to go to when the form comes back."""
        return next((row.id for row in self.rows if row.open), "")


@dataclass(frozen=True, kw_only=True)
class ShownQuestion:
    """A question before the answer."""

    reference: str
    address: str
    answer_address: str
    kind: str
    symptom: SafeString
    prompt: SafeString
    form: Form
    hints: list[SafeString]
    nonce: str
    typed: str = ""
    problem: str = ""
    is_disputed: bool = False

    @property
    def key(self) -> str:
        """For element ids, unique among the questions of a page."""
        return self.reference.replace("/", "-")


@dataclass(frozen=True, kw_only=True)
class JudgedOption:
    """An option after the answer, with why it is right or wrong."""

    html: SafeString
    chosen: bool
    right: bool
    feedback: SafeString
    belief: str


@dataclass(frozen=True, kw_only=True)
class Slip:
    """A wrong way to calculate, and the number it gives."""

    value: str
    belief: str
    feedback: SafeString
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class JudgedPair:
    """An item after the answer: the target given to it, the right one, and why."""

    html: SafeString
    given: SafeString
    key: SafeString
    right: bool
    mistake: SafeString
    belief: str
    feedback: SafeString


@dataclass(frozen=True, kw_only=True)
class PlacedStep:
    """A step where the learner put it, or where it belongs with why."""

    html: SafeString
    in_place: bool
    feedback: SafeString


@dataclass(frozen=True, kw_only=True)
class BrokenRule:
    """Two steps the wrong way round, and what that means."""

    before: SafeString
    after: SafeString
    feedback: SafeString
    belief: str


@dataclass(frozen=True, kw_only=True)
class JudgedOrder:
    """The order given beside the right one."""

    given: list[PlacedStep]
    key: list[PlacedStep]
    broken: list[BrokenRule]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How an answer is explained: what kinds have of their own. `miss` is the verdict on one worth nothing."""

    miss: str
    note: SafeString = field(default_factory=SafeString)
    options: list[JudgedOption] = field(default_factory=list)
    pairs: list[JudgedPair] = field(default_factory=list)
    order: JudgedOrder | None = None
    typed: str = ""
    understood: str = ""
    correct: str = ""
    slips: list[Slip] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LitCue:
    """Words of the scenario that decide it, and why."""

    words: str
    reason: SafeString


@dataclass(frozen=True, kw_only=True)
class Link:
    name: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Belief:
    """A misconception as it is shown to someone who has just held it."""

    name: SafeString
    refutation: SafeString
    lessons: list[Link]
    experiments: list[Link]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The quantity that was asked for, calculated for the sizes of a run, and what that run measured."""

    calculated: str
    measured: str
    difference: str
    named: str
    agrees: bool
    device: str
    run: Link


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """A question after the answer."""

    reference: str
    address: str
    next_address: str
    verdict: str
    right: bool
    credit: float
    kind: str
    prompt: SafeString
    cues: list[LitCue]
    judged: Judged
    belief: Belief | None
    explanation: SafeString
    lessons: list[Link]
    measure: Link | None
    measured: Measured | None
    drawn: Drawn | None
    calculator: Link | None
    stored_elsewhere: bool = False

    @property
    def key(self) -> str:
        return self.reference.replace("/", "-")
