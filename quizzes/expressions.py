"""Calculator expressions of packs and lessons: arithmetic over named numbers and a few fixed functions."""

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from simpleeval import InvalidExpression, SimpleEval

if TYPE_CHECKING:
    from calculators.predict.traffic import Traffic

MAX_LENGTH = 400  # characters; the longest key in the built-in packs needs about 120
MAX_PARTS = 120  # nodes of the syntax tree


class ExpressionError(ValueError):
    """An expression that cannot be calculated; the message is a sentence for its author."""


def evaluate(expression: str, names: Mapping[str, float] | None = None) -> float:
    """The value of `expression`, a finite number.

    `names` are the drawn parameters; every function of `FUNCTIONS` may be called, nothing else.
    Raises ExpressionError for wrong syntax, an unknown name, or a result that is not a finite number.

    >>> evaluate("2 * h * bytes", {"h": 4096, "bytes": 2})
    16384.0
    >>> evaluate("ceil(7 / 2)")
    4.0
    """
    return _evaluated(expression, tuple((names or {}).items()))


def holds(condition: str, names: Mapping[str, float] | None = None) -> bool:
    """Whether a `given:` condition is true: comparisons of expressions, joined by and, or, not.

    >>> holds("layers % stages == 0 and stages > 1", {"layers": 64, "stages": 4})
    True
    """
    tree = _parsed(condition, _ARITHMETIC | _LOGIC)
    value = _calculate(condition, tree, names or {})
    if not isinstance(value, bool):
        raise ExpressionError(
            f"The condition {_quoted(condition)} is a number, not true or false. Compare it with something."
        )
    return value


def names_in(expression: str) -> frozenset[str]:
    """The parameter names an expression or condition needs.

    >>> sorted(names_in("2 * layers * ceil(h / t)"))
    ['h', 'layers', 't']
    """
    return _names_in(expression)


def signatures() -> dict[str, str]:
    """Every callable function with its arguments, for documentation and error messages."""
    return {name: f"{name}{_plain_signature(function)}" for name, function in FUNCTIONS.items()}


# Parameters are closed sets, so the same few calculations come back on every page.
@lru_cache(maxsize=16_384)
def _evaluated(expression: str, names: tuple[tuple[str, float], ...]) -> float:
    tree = _parsed(expression, _ARITHMETIC)
    return _number(expression, _calculate(expression, tree, dict(names)))


@lru_cache(maxsize=4096)
def _names_in(expression: str) -> frozenset[str]:
    tree = _parsed(expression, _ARITHMETIC | _LOGIC)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    )


# --- what can be called: thin scalar doors into calculators.predict -----------------------------------


def activation_bytes(batch: float, tokens: float, hidden_size: float, bytes_per_element: float) -> float:
    from calculators.predict import shapes

    return float(shapes.activation_bytes(batch, tokens, hidden_size, bytes_per_element))


def all_reduce_bytes(full_size: float, ranks: float) -> float:
    from calculators.predict import collectives

    return float(collectives.all_reduce_bytes(full_size, ranks))


def reduce_scatter_bytes(full_size: float, ranks: float) -> float:
    from calculators.predict import collectives

    return float(collectives.reduce_scatter_bytes(full_size, ranks))


def all_gather_bytes(full_size: float, ranks: float) -> float:
    from calculators.predict import collectives

    return float(collectives.all_gather_bytes(full_size, ranks))


def all_to_all_bytes(full_size: float, ranks: float) -> float:
    from calculators.predict import collectives

    return float(collectives.all_to_all_bytes(full_size, ranks))


def all_reduce_rounds(ranks: float) -> float:
    from calculators.predict import collectives

    return float(collectives.all_reduce_rounds(ranks))


def transfer_seconds(
    sent_bytes: float, rounds: float, bytes_per_second: float, latency_seconds: float
) -> float:
    from calculators.predict import collectives

    return float(
        collectives.transfer_seconds(
            sent_bytes, rounds, bytes_per_second=bytes_per_second, latency_seconds=latency_seconds
        )
    )


def tensor_parallel_calls(layers: float, ranks: float = 2) -> float:
    """All-reduces of one forward pass."""
    return float(_tensor_parallel(1, layers, ranks).calls)


def tensor_parallel_bytes(
    hidden_size: float, layers: float, ranks: float, batch: float = 1, bytes_per_element: float = 2
) -> float:
    """Bytes each rank sends per token in decode [B]."""
    return float(_tensor_parallel(hidden_size, layers, ranks, batch, bytes_per_element).wire_bytes)


def tensor_parallel_training_calls(layers: float, ranks: float = 2, micro_batches: float = 1) -> float:
    """All-reduces of one training step."""
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import tensor_parallel

    traffic = tensor_parallel(
        hidden_size=1, layers=layers, ranks=ranks, micro_batches=micro_batches, phase=Phase.TRAINING
    )
    return float(traffic.calls)


def pipeline_parallel_calls(stages: float) -> float:
    """Activation sends of one forward pass, all boundaries together."""
    return float(_pipeline_parallel(1, stages).calls)


def pipeline_parallel_bytes(
    hidden_size: float, stages: float, batch: float = 1, bytes_per_element: float = 2
) -> float:
    """Bytes the busiest stage sends per token in decode [B]."""
    return float(_pipeline_parallel(hidden_size, stages, batch, bytes_per_element).wire_bytes)


def _tensor_parallel(
    hidden_size: float, layers: float, ranks: float, batch: float = 1, bytes_per_element: float = 2
) -> "Traffic":
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import tensor_parallel

    return tensor_parallel(
        hidden_size=hidden_size,
        layers=layers,
        ranks=ranks,
        batch=batch,
        bytes_per_element=bytes_per_element,
        phase=Phase.DECODE,
    )


def _pipeline_parallel(
    hidden_size: float, stages: float, batch: float = 1, bytes_per_element: float = 2
) -> "Traffic":
    from calculators.predict.shapes import Phase
    from calculators.predict.traffic import pipeline_parallel

    return pipeline_parallel(
        hidden_size=hidden_size,
        stages=stages,
        batch=batch,
        bytes_per_element=bytes_per_element,
        phase=Phase.DECODE,
    )


def _smallest(first: float, *others: float) -> float:
    return min((first, *others))


def _largest(first: float, *others: float) -> float:
    return max((first, *others))


FUNCTIONS: dict[str, Callable[..., float]] = {
    "activation_bytes": activation_bytes,
    "all_reduce_bytes": all_reduce_bytes,
    "reduce_scatter_bytes": reduce_scatter_bytes,
    "all_gather_bytes": all_gather_bytes,
    "all_to_all_bytes": all_to_all_bytes,
    "all_reduce_rounds": all_reduce_rounds,
    "transfer_seconds": transfer_seconds,
    "tensor_parallel_calls": tensor_parallel_calls,
    "tensor_parallel_bytes": tensor_parallel_bytes,
    "tensor_parallel_training_calls": tensor_parallel_training_calls,
    "pipeline_parallel_calls": pipeline_parallel_calls,
    "pipeline_parallel_bytes": pipeline_parallel_bytes,
    "min": _smallest,
    "max": _largest,
    "abs": math.fabs,
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "round": lambda x: float(round(x)),
    "sqrt": math.sqrt,
    "log2": math.log2,
}

# --- reading and calculating ---------------------------------------------------------------------------

_ARITHMETIC = frozenset(
    {
        ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
        ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd,
    }
)  # fmt: skip
_LOGIC = frozenset(
    {
        ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.Not,
        ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def _parsed(expression: str, allowed: frozenset[type[ast.AST]]) -> ast.Expression:
    """The syntax tree, with every number a float: whole-number powers could otherwise run for minutes."""
    if not expression.strip():
        raise ExpressionError("The expression is empty. Write a calculation, for example 2 * layers.")
    if len(expression) > MAX_LENGTH:
        raise ExpressionError(
            f"The expression has {len(expression)} characters; at most {MAX_LENGTH} are read. Shorten it."
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise ExpressionError(
            f"The expression {_quoted(expression)} cannot be read: {reason}. "
            "Write plain arithmetic, for example 2 * layers."
        ) from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_PARTS:
        raise ExpressionError(
            f"The expression {_quoted(expression)} has {len(nodes)} parts; at most {MAX_PARTS} are read."
        )
    for node in nodes:
        if type(node) not in allowed:
            raise ExpressionError(
                f"The expression {_quoted(expression)} uses {_described(node)}, which is not allowed. "
                "Use numbers, parameters, + - * / // % **, and the calculator's functions."
            )
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, int | float):
                raise ExpressionError(
                    f"The expression {_quoted(expression)} contains {node.value!r}, which is not a number."
                )
            try:
                node.value = float(node.value)
            except OverflowError:
                raise ExpressionError(
                    f"The expression {_quoted(expression)} contains a number too large to calculate with."
                ) from None
        if isinstance(node, ast.Call):
            _check_call(expression, node)
    return tree


def _check_call(expression: str, call: ast.Call) -> None:
    name = call.func.id if isinstance(call.func, ast.Name) else "something that is not a name"
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"The expression {_quoted(expression)} calls {name}, which the calculator does not have. "
            f"It has: {', '.join(sorted(FUNCTIONS))}."
        )
    if any(keyword.arg is None for keyword in call.keywords):
        raise ExpressionError(f"The expression {_quoted(expression)} uses **, which a call may not.")
    try:
        inspect.signature(FUNCTIONS[name]).bind(*call.args, **{str(k.arg): k.value for k in call.keywords})
    except TypeError as error:
        raise ExpressionError(
            f"The expression {_quoted(expression)} calls {name} wrongly: {error}. "
            f"Call it as {name}{_plain_signature(FUNCTIONS[name])}."
        ) from None


def _calculate(expression: str, tree: ast.Expression, names: Mapping[str, float]) -> object:
    evaluator = SimpleEval(
        operators=_OPERATORS, functions=FUNCTIONS, names={name: float(value) for name, value in names.items()}
    )
    unknown = sorted(names_in(expression) - names.keys())
    if unknown:
        known = f"Known here: {', '.join(sorted(names))}." if names else "No parameters are known here."
        raise ExpressionError(
            f"The expression {_quoted(expression)} uses the unknown name {unknown[0]}. {known}"
        )
    try:
        return evaluator.eval(expression, previously_parsed=tree.body)
    except ZeroDivisionError:
        raise ExpressionError(
            f"The expression {_quoted(expression)} divides by zero{_with(names)}."
        ) from None
    except OverflowError:
        raise ExpressionError(f"The expression {_quoted(expression)} is too large{_with(names)}.") from None
    except ImportError as error:
        raise ExpressionError(
            f"The expression {_quoted(expression)} needs a part of the calculator that is not installed: "
            f"{error}."
        ) from None
    except (InvalidExpression, ValueError, TypeError) as error:
        raise ExpressionError(
            f"The expression {_quoted(expression)} cannot be calculated{_with(names)}: {error}"
        ) from None


def _number(expression: str, value: object) -> float:
    if isinstance(value, complex) or not isinstance(value, int | float) or isinstance(value, bool):
        raise ExpressionError(f"The expression {_quoted(expression)} is not a real number.")
    if not math.isfinite(value):
        raise ExpressionError(f"The expression {_quoted(expression)} is not a finite number.")
    return float(value)


def _quoted(expression: str) -> str:
    shown = " ".join(expression.split())
    return f"“{shown}”" if len(shown) <= 80 else f"“{shown[:77]}…”"


def _with(names: Mapping[str, float]) -> str:
    return f" with {', '.join(f'{name} = {value:g}' for name, value in names.items())}" if names else ""


def _described(node: ast.AST) -> str:
    words = {
        ast.Attribute: "a dot (attribute access)",
        ast.Subscript: "square brackets",
        ast.Lambda: "a lambda",
        ast.Compare: "a comparison",
        ast.BoolOp: "and/or",
        ast.IfExp: "if/else",
        ast.JoinedStr: "text",
        ast.List: "a list",
        ast.Starred: "a star",
    }
    return words.get(type(node), f"Python’s {type(node).__name__}")


def _plain_signature(function: Callable[..., float]) -> str:
    parameters = inspect.signature(function).parameters.values()
    return f"({', '.join(f'{p.name}, …' if p.kind is p.VAR_POSITIONAL else p.name for p in parameters)})"


_OPERATORS: dict[type[ast.AST], Callable[..., object]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
    ast.Not: lambda a: not a,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
