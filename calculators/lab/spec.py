"""What a person asks the lab to run: TOML or a form in, one frozen spec out."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from calculators.lab.limits import MAX_RANKS, VERIFIED_TOKENS, contradictions
from calculators.lab.problems import Problem as Problem
from calculators.lab.problems import SpecError as SpecError

EXPERIMENTS = Path(__file__).parent / "experiments"

LONGEST_CONTEXT = 256
"""Decoding writes over older keys and values, so a long run takes no more memory."""


Family = Literal["dp", "tp", "pp", "cp", "ep"]


class Job(StrEnum):
    """What a run does: split a model by one family, or make a family's calls alone, with no model."""

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    EXCHANGE = "exchange"


class Pattern(StrEnum):
    """Whose calls an exchange makes (`docs/lab.md` lists them)."""

    GRADIENTS = "gradients"
    ZERO_1 = "zero-1"
    ZERO_2 = "zero-2"
    ZERO_3 = "zero-3"
    RING = "ring"
    KEY_VALUE_GATHER = "key-value-gather"
    ULYSSES = "ulysses"
    EXPERTS = "experts"

    @property
    def family(self) -> Family:
        """The family whose calls these are."""
        if self is Pattern.EXPERTS:
            return "ep"
        return "cp" if self in (Pattern.RING, Pattern.KEY_VALUE_GATHER, Pattern.ULYSSES) else "dp"


class Phase(StrEnum):
    """What one measured step is: a token decoded, or an optimizer's step of training."""

    DECODE = "decode"
    TRAINING = "training"


class Schedule(StrEnum):
    """The order in which a pipeline's stages work through micro-batches in training."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


class Qkv(StrEnum):
    """Whether attention's three input projections are one matrix or three."""

    FUSED = "fused"
    SEPARATE = "separate"


class Dtype(StrEnum):
    """The type of weights and activations."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def bytes_per_element(self) -> int:
        return 4 if self is Dtype.FLOAT32 else 2


class Device(StrEnum):
    """Where ranks compute; `auto` takes CUDA GPUs where there are any."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One run: a stack of transformer layers, how it is split, and how often it is measured.

    Sizes are elements, `batch` is sequences, `tokens` the length of each training sequence (a decode
    step has one token in flight for each sequence). Training a pipeline cuts `batch` into `microbatches`.

    An exchange has no model: it makes the calls of `pattern` `repeats` times a step, each of full size
    `call_bytes`. Experts' rows are `hidden_size` wide, and `skew` says how unequally they are wanted:
    the r-th expert as r^−skew. Fields that a job does not read are at their defaults.
    """

    job: Job
    phase: Phase = Phase.DECODE
    ranks: int = 2
    layers: int = 8
    hidden_size: int = 256
    attention_heads: int = 8
    ffn_width: int = 512
    vocab_size: int = 512
    batch: int = 8
    tokens: int = 64
    microbatches: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    qkv: Qkv = Qkv.FUSED
    pattern: Pattern = Pattern.GRADIENTS
    call_bytes: int = 262_144
    repeats: int = 8
    skew: float = 0.0
    dtype: Dtype = Dtype.FLOAT32
    device: Device = Device.AUTO
    steps: int = 64
    warmup_steps: int = 1
    seed: int = 0
    time_limit_seconds: float = 120.0
    note: str = field(default="", compare=False)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """The spec that `given` describes; a table named `model` may group the sizes.

        Values may be of the right type (TOML) or their text (a form). Raises `SpecError` with every problem.
        """
        flat, unknown = _flatten(given)
        values: dict[str, Any] = {}
        unreadable: list[Problem] = []
        for name, value in flat.items():
            try:
                values[name] = _READERS[name](name, value)
            except _Unreadable as error:
                unreadable.append(Problem(name, str(error)))
        if "job" not in flat:
            jobs = ", ".join(f"“{job}”" for job in Job)
            unreadable.append(Problem("job", f"job is missing. Say what to run, one of {jobs}."))
        if unreadable:
            raise SpecError(unknown + unreadable)
        spec = cls(**{name: value for name, value in values.items() if _is_read(name, values)})
        if problems := unknown + contradictions(spec):
            raise SpecError(problems)
        return spec

    @classmethod
    def from_toml(cls, text: str, *, source: str = "the spec") -> Self:
        """The spec in a TOML text; `source` names it in a syntax error."""
        try:
            return cls.parse(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SpecError([Problem("", f"{source} is not valid TOML: {error}.")]) from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """The spec in a TOML file."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise SpecError([Problem("", f"{path} cannot be read: {error.strerror}.")]) from error
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = (
                f"{path} is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}. Save it as UTF-8."
            )
            raise SpecError([Problem("", message)]) from error
        return cls.from_toml(text, source=str(path))

    @property
    def is_training(self) -> bool:
        return self.phase is Phase.TRAINING

    @property
    def is_exchange(self) -> bool:
        return self.job is Job.EXCHANGE

    @property
    def family(self) -> Family:
        """The family whose traffic this run makes."""
        if self.is_exchange:
            return self.pattern.family
        return "tp" if self.job is Job.TENSOR else "pp"

    @property
    def unit(self) -> str:
        """What one measured step is."""
        return "step" if self.is_training or self.is_exchange else "token"

    @property
    def bytes_per_call(self) -> int:
        """Full size of one call [bytes]: the hidden state's, or what the exchange was given."""
        return self.call_bytes if self.is_exchange else self.activation_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row that experts exchange: a token's hidden state."""
        return self.hidden_size * self.dtype.bytes_per_element

    @property
    def caveat(self) -> str:
        """What a reader must know before its numbers; empty where a model really ran."""
        return ALONE if self.is_exchange else ""

    @property
    def proven(self) -> str:
        """What a verified run has shown."""
        if self.is_exchange:
            return "each call gave what it must"
        return "the sharded result equals the unsharded one"

    @property
    def compared(self) -> tuple[str, str]:
        """What verification compares, and with what."""
        return (
            ("the result of each call", "what it must be") if self.is_exchange else ("sharded", "unsharded")
        )

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.attention_heads

    @property
    def tokens_in_flight(self) -> int:
        """Tokens of one sequence that a step works on: one in decode, all of them in training."""
        return self.tokens if self.is_training else 1

    @property
    def context(self) -> int:
        """Tokens whose keys and values decoding keeps: all of a run's, or the last `LONGEST_CONTEXT`."""
        return min(LONGEST_CONTEXT, VERIFIED_TOKENS + self.warmup_steps + self.steps)

    @property
    def activation_bytes(self) -> int:
        """Bytes of the hidden state that one call moves: a pipeline in training moves a micro-batch's."""
        sequences = self.batch // self.microbatches
        return sequences * self.tokens_in_flight * self.hidden_size * self.dtype.bytes_per_element

    @property
    def parameters(self) -> int:
        """Weights of the whole model: a layer has 4·h² + 2·h·f + 2·h, the ends 2·V·h + h."""
        h = self.hidden_size
        return self.layers * (4 * h * h + 2 * h * self.ffn_width + 2 * h) + 2 * self.vocab_size * h + h

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON and forms want them; `Spec.parse` reads them back."""
        return {name: getattr(value, "value", value) for name, value in vars(self).items()}

    def to_toml(self) -> str:
        """The same spec as a file that a person can edit."""
        values = self.to_dict()
        said = {name: f"{name} = {_toml(value)}" for name, value in values.items() if _is_read(name, values)}
        lines = [line for name, line in said.items() if name not in _MODEL]
        sizes = [line for name, line in said.items() if name in _MODEL]
        return "\n".join([*lines, *(["", "[model]", *sizes] if sizes else [])]) + "\n"


def experiment(name: str) -> Spec:
    """The spec that ships under this name (`experiments/NAME.toml`); `SpecError` names those there are."""
    if name not in experiment_names():
        known = ", ".join(experiment_names())
        message = f"There is no experiment “{name}”. Those that ship are {known}."
        raise SpecError([Problem("experiment", message)])
    return Spec.load(EXPERIMENTS / f"{name}.toml")


def experiment_names() -> list[str]:
    """Names of the specs that ship with the lab."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))


ALONE = "No model computes here: the ranks only make the calls, on random numbers, and check what each call must give."

_EXCHANGE = ("pattern", "call_bytes", "repeats", "skew")
_MODEL = ("layers", "hidden_size", "attention_heads", "ffn_width", "vocab_size")

_MODEL_ONLY = {*_MODEL, "phase", "batch", "tokens", "microbatches", "schedule", "qkv"}

# Smallest and largest value of each whole number, and what it counts.
_RANGES = {
    "ranks": (2, MAX_RANKS, "ranks"),
    "layers": (1, 256, "layers"),
    "hidden_size": (8, 16_384, "elements"),
    "attention_heads": (1, 256, "heads"),
    "ffn_width": (8, 65_536, "elements"),
    "vocab_size": (8, 262_144, "tokens"),
    "batch": (1, 4_096, "sequences"),
    "tokens": (1, 16_384, "tokens"),
    "microbatches": (1, 256, "micro-batches"),
    "call_bytes": (2, 2**30, "bytes"),
    "repeats": (1, 4_096, "times a step"),
    "steps": (10, 10_000, "measured steps"),
    "warmup_steps": (1, 1_000, "warm-up steps"),
    "seed": (0, 2**31 - 1, ""),
}


def _is_read(name: str, values: Mapping[str, Any]) -> bool:
    """Whether the job in `values` looks at this field; a form sends the others all the same."""
    if values["job"] != Job.EXCHANGE:
        return name not in _EXCHANGE
    routes = values.get("pattern") == Pattern.EXPERTS
    return {"skew": routes, "hidden_size": routes}.get(name, name not in _MODEL_ONLY)


class _Unreadable(ValueError):
    """A value that is not of its field's kind; the text is the sentence to show."""


def _flatten(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The values by field name, and a problem for each key that no field has."""
    flat: dict[str, Any] = {}
    problems: list[Problem] = []
    known = set(_READERS)
    for name, value in given.items():
        if name == "model" and isinstance(value, Mapping):
            for inner, size in value.items():
                if inner in _MODEL:
                    flat[inner] = size
                else:
                    sizes = ", ".join(_MODEL)
                    text = f"The key “{inner}” in [model] is unknown. The sizes of a model are {sizes}."
                    problems.append(Problem(inner, text))
        elif name in known:
            flat[name] = value
        else:
            keys = ", ".join(sorted(known - set(_MODEL)))
            text = f"The key “{name}” is unknown. A spec may hold {keys} and a table [model]."
            problems.append(Problem(name, text))
    return flat, problems


def _whole_number(name: str, value: Any) -> int:
    low, high, unit = _RANGES[name]
    number = _plain_int(value)
    counted = f" {unit}" if unit else ""
    if number is None:
        raise _Unreadable(
            f"{name} is “{value}”, but it must be a whole number from {low} to {high:,}{counted}."
        )
    if number < low:
        raise _Unreadable(f"{name} is {number:,}, but the least that works is {low:,}{counted}.")
    if number > high:
        raise _Unreadable(f"{name} is {number:,}, but this lab stops at {high:,}{counted}.")
    return number


def _plain_int(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) <= 20:
            return int(text)
    return None


def _choice(kind: type[StrEnum]) -> Any:
    def read(name: str, value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(f"“{choice}”" for choice in kind)
            raise _Unreadable(f"{name} is “{value}”, but it must be one of {choices}.") from None

    return read


def _seconds(name: str, value: Any) -> float:
    number = _plain_float(value)
    if not 1 <= number <= 3_600:
        raise _Unreadable(f"{name} is “{value}”, but it must be from 1 to 3,600 seconds.")
    return number


def _exponent(name: str, value: Any) -> float:
    number = _plain_float(value)
    if not 0 <= number <= 8:
        raise _Unreadable(f"{name} is “{value}”, but it must be from 0 (all alike) to 8 (nearly all to one).")
    return number


def _plain_float(value: Any) -> float:
    try:
        return float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return float("nan")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500 or not value.isprintable():
        raise _Unreadable(f"{name} must be one line of text, 500 characters at most.")
    return value


_READERS: dict[str, Any] = {
    "job": _choice(Job),
    "phase": _choice(Phase),
    "schedule": _choice(Schedule),
    "qkv": _choice(Qkv),
    "pattern": _choice(Pattern),
    "skew": _exponent,
    "dtype": _choice(Dtype),
    "device": _choice(Device),
    "time_limit_seconds": _seconds,
    "note": _text,
    **dict.fromkeys(_RANGES, _whole_number),
}


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
