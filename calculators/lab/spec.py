"""What a person asks the lab to run: TOML or a form in, one frozen spec out."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from calculators.lab import reading
from calculators.lab.choices import Attention as Attention
from calculators.lab.choices import Device as Device
from calculators.lab.choices import Dtype as Dtype
from calculators.lab.choices import Family as Family
from calculators.lab.choices import Gradients as Gradients
from calculators.lab.choices import Job as Job
from calculators.lab.choices import Order as Order
from calculators.lab.choices import Pattern as Pattern
from calculators.lab.choices import Phase as Phase
from calculators.lab.choices import Qkv as Qkv
from calculators.lab.choices import ReduceScatter as ReduceScatter
from calculators.lab.choices import Schedule as Schedule
from calculators.lab.fields import LATER_DEFAULTS, is_read
from calculators.lab.limits import VERIFIED_TOKENS, contradictions
from calculators.lab.problems import Problem as Problem
from calculators.lab.problems import SpecError as SpecError

EXPERIMENTS = Path(__file__).parent / "experiments"

LONGEST_CONTEXT = 256
"""Decoding writes over older keys and values, so a long run takes no more memory."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One run: a stack of transformer layers, how it is split, and how often it is measured.

    Sizes are elements, `batch` is sequences, `tokens` the length of each sequence in prefill and training (a
    decode step has one token in flight for each sequence). A pipeline cuts `batch` into `microbatches`, and in
    decode these are the requests in flight.

    An exchange has no model: it makes the calls of `pattern` `repeats` times a step, each of full size
    `call_bytes`. Experts' rows are `hidden_size` wide, and `skew` says how unequally they are wanted:
    the r-th expert as r^−skew. A calibration times calls of up to `call_bytes`.

    A mesh composes families: `tp` × `pp` × `dp`, or `ep` × `dp`, is its number of ranks. With more than one of
    `hosts`, each is a network namespace of this machine with an equal block of the ranks, and `link_mbit`
    (0: as fast as it goes), `delay_ms` and `jitter_ms` shape the link of each.

    Fields that a job does not read are at their defaults (`fields.py`).
    """

    job: Job
    phase: Phase = Phase.DECODE
    ranks: int = 2
    hosts: int = 1
    link_mbit: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    layers: int = 8
    hidden_size: int = 256
    attention_heads: int = 8
    ffn_width: int = 512
    vocab_size: int = 512
    batch: int = 8
    tokens: int = 64
    microbatches: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    chunks: int = 1
    qkv: Qkv = Qkv.FUSED
    sequence: bool = False
    regather: bool = False
    reduce_scatter: ReduceScatter = ReduceScatter.BACKEND
    gradients: Gradients = Gradients.SUMMED
    lost_rank: int = -1
    zero: int = 3
    attention: Attention = Attention.RING
    zigzag: bool = False
    experts: int = 8
    top_k: int = 2
    capacity: float = 0.0
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    order: Order = Order.TENSOR_INSIDE
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
        flat, unknown = reading.flatten(given)
        values, unreadable = reading.read(flat)
        if "job" not in flat:
            jobs = ", ".join(f"“{job}”" for job in Job)
            unreadable.append(Problem("job", f"job is missing. Say what to run, one of {jobs}."))
        if unreadable:
            raise SpecError(unknown + unreadable)
        spec = cls(**{name: value for name, value in values.items() if is_read(name, values)})
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
    def is_decode(self) -> bool:
        return self.phase is Phase.DECODE

    @property
    def is_exchange(self) -> bool:
        return self.job is Job.EXCHANGE

    @property
    def has_model(self) -> bool:
        """Whether a model computes; an exchange and a calibration only make calls."""
        return self.job not in (Job.EXCHANGE, Job.CALIBRATION)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families whose traffic this run makes, the one that its page is coloured by first."""
        match self.job:
            case Job.EXCHANGE:
                return (self.pattern.family,)
            case Job.TENSOR if self.sequence:
                return ("sp", "tp")
            case Job.MESH:
                sizes: dict[Family, int] = {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}
                return tuple(family for family, size in sizes.items() if size > 1) or ("dp",)
            case _:
                return (_FAMILY_OF[self.job],)

    @property
    def family(self) -> Family:
        """The family that its page is coloured by."""
        return self.families[0]

    @property
    def unit(self) -> str:
        """What one measured step is."""
        if not self.has_model or self.is_training:
            return "step"
        return "token" if self.is_decode else "prompt"

    @property
    def bytes_per_call(self) -> int:
        """Full size of one call [bytes]: the hidden state's, or what the exchange was given."""
        return self.activation_bytes if self.has_model else self.call_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row that experts exchange: a token's hidden state."""
        return self.hidden_size * self.dtype.bytes_per_element

    @property
    def caveat(self) -> str:
        """What a reader must know before its numbers; empty where a model ran as models do."""
        if self.has_experts:
            return DRAWN
        return "" if self.has_model else ALONE

    @property
    def proven(self) -> str:
        """What a verified run has shown."""
        if not self.has_model:
            return "each call gave what it must"
        return "the sharded result equals the unsharded one"

    @property
    def compared(self) -> tuple[str, str]:
        """What verification compares, and with what."""
        return ("sharded", "unsharded") if self.has_model else ("the result of each call", "what it must be")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.attention_heads

    @property
    def tokens_in_flight(self) -> int:
        """Tokens of one sequence that a step works on: one in decode, else all of them."""
        return 1 if self.is_decode else self.tokens

    @property
    def context(self) -> int:
        """Tokens whose keys and values decoding keeps: all of a run's, or the last `LONGEST_CONTEXT`."""
        return min(LONGEST_CONTEXT, VERIFIED_TOKENS + self.warmup_steps + self.steps)

    @property
    def activation_bytes(self) -> int:
        """Bytes of the hidden state that one call moves: a micro-batch's or request's of one replica of a mesh."""
        sequences = self.batch // self.dp // self.microbatches
        return sequences * self.tokens_in_flight * self.hidden_size * self.dtype.bytes_per_element

    @property
    def has_experts(self) -> bool:
        """Whether its feed-forward blocks are mixtures of experts; one expert is a dense block."""
        return self.experts > 1 and (self.job is Job.EXPERT or (self.job is Job.MESH and self.ep > 1))

    @property
    def parameters(self) -> int:
        """Weights of the whole model: a layer has 4·h² + 2·h·f + 2·h, with E experts 2·h·f of each and E·h; the ends
        2·V·h + h.
        """
        h = self.hidden_size
        blocks, router = (self.experts, self.experts * h) if self.has_experts else (1, 0)
        layer = 4 * h * h + blocks * 2 * h * self.ffn_width + router + 2 * h
        return self.layers * layer + 2 * self.vocab_size * h + h

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON and forms want them; `Spec.parse` reads them back."""
        return {name: getattr(value, "value", value) for name, value in vars(self).items()}

    def to_toml(self) -> str:
        """The same spec as a file that a person can edit."""
        values = self.to_dict()
        said = {
            name: f"{name} = {_toml(value)}"
            for name, value in values.items()
            if is_read(name, values) and value != LATER_DEFAULTS.get(name)
        }
        lines = [line for name, line in said.items() if name not in reading.MODEL]
        sizes = [line for name, line in said.items() if name in reading.MODEL]
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
DRAWN = (
    "Which experts a token visits is drawn from the seed, as unequally as the skew says: the plan must know it before "
    "the run. The router only learns how much each answer counts."
)

_FAMILY_OF: dict[Job, Family] = {
    Job.DATA: "dp",
    Job.SHARDED: "dp",
    Job.TENSOR: "tp",
    Job.PIPELINE: "pp",
    Job.CONTEXT: "cp",
    Job.EXPERT: "ep",
    Job.CALIBRATION: "dp",
}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
