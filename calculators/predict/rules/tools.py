"""The programs whose checks the rules repeat, each in the version that was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One program: a rule may be enforced by one and unknown to another."""

    key: str
    name: str
    version: str


_TOOLS = (
    Tool(key="megatron", name="Megatron-LM", version="d98e8a64 of August 2026, with Transformer Engine"),
    Tool(key="megatron-0.15", name="Megatron-LM 0.15", version="core 0.15"),
    Tool(key="torchtitan", name="torchtitan", version="b5bcd76c of August 2026, with torch 2.13"),
    Tool(key="deepspeed", name="DeepSpeed", version="edaa7221 of August 2026"),
    Tool(key="vllm", name="vLLM", version="its serving documentation of 2026"),
)
TOOLS = {tool.key: tool for tool in _TOOLS}
EVERY = frozenset(TOOLS)
MEGATRONS = frozenset({"megatron", "megatron-0.15"})


def tool(key: str) -> Tool:
    """The tool with this key. Raises ValueError that names them all."""
    if key not in TOOLS:
        raise ValueError(f"tool is {key!r}, whose checks are not known here. Use one of: {', '.join(TOOLS)}.")
    return TOOLS[key]
