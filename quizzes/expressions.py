"""Calculator expressions of packs and lessons: arithmetic over named numbers and a few fixed functions."""

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from simpleeval import InvalidExpression, SimpleEval

from quizzes.calculations import FUNCTIONS as FUNCTIONS

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
