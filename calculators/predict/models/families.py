"""How the configurations of model families differ from each other, as data.

The names of keys and what a missing one means are those of the configuration classes of Hugging Face transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the configurations of some types differ from the usual.

    types        values of model_type
    gated        whether the feed-forward block has three matrices
    tied         whether the output matrix is the embedding where nothing is said
    unsaid       sizes that a configuration may leave out, and what they then are
    needs        keys, be they null, without which a model of this family would be taken for something simpler
    ffn_factor   the feed-forward width in hidden sizes where none is said; 0 where it has to be
    full_every   every so many layers one attends to everything, the others through the window; 0: all through it
    positions    the key that counts learned position vectors
    window_is_asked_for   a window counts only where use_sliding_window is true
    """

    types: tuple[str, ...]
    gated: bool = True
    tied: bool = False
    unsaid: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    ffn_factor: int = 0
    full_every: int = 0
    positions: str = ""
    window_is_asked_for: bool = False


_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size")
_SHARED = ("n_routed_experts", "n_shared_experts", "first_k_dense_replace", *_EXPERTS)
_LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

FAMILIES = (
    Family(types=("llama", "mistral", "ministral", "glm", "glm4", "chatglm", "phi3")),
    Family(types=("mixtral", "phimoe"), needs=("num_local_experts", "num_experts_per_tok")),
    Family(types=("qwen2",), window_is_asked_for=True),
    Family(types=("qwen3",), window_is_asked_for=True, unsaid={"head_dim": 128}),
    Family(
        types=("qwen2_moe",),
        window_is_asked_for=True,
        needs=("num_experts", *_EXPERTS, "shared_expert_intermediate_size"),
    ),
    Family(types=("qwen3_moe",), window_is_asked_for=True, needs=("num_experts", *_EXPERTS)),
    Family(types=("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), needs=(*_LATENT, *_SHARED)),
    Family(types=("deepseek", "glm4_moe"), needs=_SHARED),
    Family(types=("gpt_oss",), needs=("num_local_experts", "head_dim"), full_every=2),
    Family(types=("gemma",), tied=True, unsaid={"head_dim": 256}),
    Family(types=("gemma2",), tied=True, unsaid={"head_dim": 256}, full_every=2),
    Family(
        types=("gemma3", "gemma3_text"),
        tied=True,
        unsaid={"attention_heads": 8, "kv_heads": 4, "head_dim": 256, "vocab_size": 262_208},
        full_every=6,
    ),
    Family(types=("phi", "gpt_neox", "nemotron"), gated=False),
    Family(types=("gpt2",), gated=False, tied=True, ffn_factor=4, positions="n_positions"),
    Family(types=("opt",), gated=False, tied=True, positions="max_position_embeddings"),
)
