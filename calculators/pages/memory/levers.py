"""A lever in a few words, for where there is little room."""

from calculators.predict.memory.levers import Lever


def short(lever: Lever) -> str:
    """A lever in a few words."""
    key, _, size = lever.key.partition("-")
    if key in ("tp", "pp", "cp", "ep"):
        return f"{key.upper()} {size}"
    words = {
        "sp": "SP on",
        "zero": f"ZeRO-{size}",
        "recompute": f"recompute {'scores' if size == 'selective' else 'all'}",
        "kv": f"KV in {size} bits",
        "weights": f"weights in {size} bits",
        "micro": "half the micro-batch",
        "batch": "half the sequences",
        "context": "half the context",
    }
    return words[key]


def under_bar(lever: Lever) -> str:
    """The same in what fits under a bar."""
    key, _, size = lever.key.partition("-")
    words = {
        "sp": "SP",
        "recompute": "scores" if size == "selective" else "recompute",
        "kv": f"KV {size} bit",
        "weights": f"{size} bit",
        "micro": "½ batch",
        "batch": "½ batch",
        "context": "½ context",
    }
    return words.get(key, short(lever))
