"""A model's sizes from its Hugging Face config.json: read as data, never executed, and nothing is fetched.

What differs between the families is data in `config_families`; a model of any other type is read by the usual names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calculators.predict.models.codes import LONGEST_NAME, MOST, code_of
from calculators.predict.models.families import FAMILIES, Family
from calculators.predict.models.text import LARGEST_BYTES, ConfigError, listed, read_object, shown
from calculators.predict.shapes import Experts, LatentAttention, ModelShape, SlidingWindow

__all__ = ["LARGEST_BYTES", "ConfigError", "read_config"]

# Our word for a size, and the keys that say it, the usual first.
_KEYS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn_width": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "routed": ("num_local_experts", "num_experts", "n_routed_experts"),
    "per_token": ("num_experts_per_tok", "experts_per_token"),
    "width": ("moe_intermediate_size",),
    "shared_width": ("shared_expert_intermediate_size",),
    "shared": ("n_shared_experts", "num_shared_experts"),
    "dense_layers": ("first_k_dense_replace",),
    "kv_rank": ("kv_lora_rank",),
    "query_rank": ("q_lora_rank",),
    "nope_dim": ("qk_nope_head_dim",),
    "rope_dim": ("qk_rope_head_dim",),
    "value_dim": ("v_head_dim",),
    "tokens": ("sliding_window",),
    "full_every": ("sliding_window_pattern", "_sliding_window_pattern"),
    "full_layers": ("max_window_layers",),
}
_MOST = {
    **MOST,
    "shared": 1_000,
    "nope_dim": MOST["head_dim"],
    "full_every": 1_000,
    "full_layers": MOST["layers"],
}
_CAN_BE_ZERO = {"shared_width", "shared", "dense_layers", "full_layers"}
_SHARED = (
    "model_type",
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
)  # what the whole says for its parts as well
# A model that sees keeps its language model in a part of its own, for which the whole speaks as well.
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_SHARED = ("model_type", "tie_word_embeddings", "torch_dtype", "dtype")
_GATED = ("silu", "swish", "swiglu", "geglu")
_ELEMENTS = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "auto": 2,
    "float8_e4m3fn": 2,  # a format of weights: activations stay at 16 bits
    "float8_e5m2": 2,
    "int8": 2,
    "uint8": 2,
}
# Keys of models that mix attention with layers of another kind: what is counted here would be wrong for them.
_MIXED = (
    "full_attention_interval",
    "attn_layer_period",
    "hybrid_override_pattern",
    "linear_attn_config",
    "mamba_d_state",
    "ssm_cfg",
    "state_size",
)
_STEPS = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step")


def read_config(text: str | bytes, name: str = "") -> ModelShape:
    """The sizes that a config.json gives; `name` is what to call the model, else the file's own word for it.

    Raises ConfigError, with a sentence for every problem that was found.

    >>> shape = read_config(
    ...     '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,'
    ...     ' "intermediate_size": 11008, "vocab_size": 32000}'
    ... )
    >>> shape.head_dim, shape.kv_heads
    (128, 32)
    """
    whole = read_object(text)
    inner = next((whole[key] for key in _TEXT_PARTS if isinstance(whole.get(key), dict)), None)
    if inner is None:
        return _Reading(whole).shape(_name(name, whole))
    shared = {key: whole[key] for key in _SHARED if key in whole}
    return _Reading({**shared, **inner}).shape(_name(name, whole))


class _Reading:
    """One configuration while it is read: what it says, and what has turned out wrong or missing so far."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said
        self.problems: list[str] = []
        self.missing: list[str] = []
        self.dense_layers = 0
        given = said.get("model_type")
        self.type = given if isinstance(given, str) else ""
        if given is not None and not self.type:
            self.problems.append(
                f'model_type is {shown(given)}: write the name of a family, such as "llama".'
            )
        known = next((family for family in FAMILIES if self.type in family.types), None)
        act = said.get("hidden_act", said.get("hidden_activation"))
        # transformers ties unless a configuration says otherwise; three matrices go with SwiGLU and its kin.
        self.family = known or Family(types=(), tied=True, gated=act is None or act in _GATED)
        self.is_known = known is not None

    def shape(self, name: str) -> ModelShape:
        """The model. Raises ConfigError."""
        self._refuse_other_kinds()
        hidden = self._size("hidden_size")
        layers = self._size("layers")
        heads = self._size("attention_heads")
        vocabulary = self._size("vocab_size")
        latent = self._latent()
        experts = self._experts(layers)
        sizes = {
            "hidden_size": hidden,
            "layers": layers,
            "attention_heads": heads,
            "vocab_size": vocabulary,
            "head_dim": self._head_dim(hidden, heads),
            "kv_heads": self._kv_heads(heads),
            "ffn_width": self._ffn_width(hidden),
            "bytes_per_element": self._element(),
            "positions": self._whole(self.family.positions, "positions") if self.family.positions else 0,
        }
        window = self._window(layers)
        tied = self._truth("tie_word_embeddings", unsaid=self.family.tied)
        self._say_what_is_missing()
        if self.problems:
            raise ConfigError(dict.fromkeys(self.problems))
        try:
            shape = ModelShape(
                name=name,
                source=self._source(),
                gated=self.family.gated,
                tied_embeddings=tied,
                experts=experts,
                latent=latent,
                window=window,
                **{word: size for word, size in sizes.items() if size is not None},
            )
            code_of(shape)  # what an address can carry, every page can calculate
        except ValueError as error:
            raise ConfigError([str(error)]) from None
        return shape

    def _size(self, word: str) -> int | None:
        """A size that every model has; None where it is wrong or missing, which is then noted."""
        if key := self._key(word):
            return self._whole(key, word)
        if word in self.family.unsaid:
            return self.family.unsaid[word]
        self._lacks(_KEYS[word][0])
        return None

    def _optional(self, word: str) -> int:
        """A size that not every model has; 0 where it is not said, or wrong, which is then noted."""
        key = self._key(word)
        return (self._whole(key, word) or 0) if key else 0

    def _key(self, word: str) -> str:
        """The key that says this size; empty where none does, or it says null."""
        return next((key for key in _KEYS[word] if self.said.get(key) is not None), "")

    def _whole(self, key: str, word: str) -> int | None:
        """The value of a key, if it is a whole number that this size can be."""
        value = self.said.get(key)
        if value is None:
            self._lacks(key)
            return None
        least, most = int(word not in _CAN_BE_ZERO), _MOST[word]
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        marks = ", without quotation marks" if isinstance(value, str) else ""
        self._wrong(f"{key} is {shown(value)}: write a whole number from {least:,} to {most:,}{marks}.")
        return None

    def _truth(self, key: str, *, unsaid: bool) -> bool:
        value = self.said.get(key)
        if value is None or isinstance(value, bool):
            return unsaid if value is None else value
        self._wrong(f"{key} is {shown(value)}: write true or false.")
        return unsaid

    def _wrong(self, sentence: str) -> None:
        self.problems.append(sentence)

    def _lacks(self, key: str) -> None:
        if key not in self.missing:
            self.missing.append(key)

    def _refuse_other_kinds(self) -> None:
        for key in _MIXED:
            if self.said.get(key) is not None:
                self._wrong(
                    f"{key} is {shown(self.said[key])}: some layers of this model are no attention layers, which the "
                    "calculators cannot count, so take a model that has attention in every layer."
                )
        if self._truth("is_encoder_decoder", unsaid=False):
            self._wrong(
                "is_encoder_decoder is true: the calculators know models with a decoder alone, so take one of those."
            )

    def _latent(self) -> LatentAttention | None:
        if not self._key("kv_rank"):
            return None
        found = {word: self._size(word) for word in ("kv_rank", "rope_dim", "value_dim")}
        if "q_lora_rank" not in self.said:
            self._lacks("q_lora_rank")
        query = self._optional("query_rank")  # null: queries are projected directly
        sizes = {word: size for word, size in found.items() if size is not None}
        return LatentAttention(query_rank=query, **sizes) if len(sizes) == len(found) else None

    def _head_dim(self, hidden: int | None, heads: int | None) -> int | None:
        if self._key("kv_rank"):
            return self._size("nope_dim")
        if key := self._key("head_dim"):
            return self._whole(key, "head_dim")
        if "head_dim" in self.family.unsaid:
            return self.family.unsaid["head_dim"]
        if hidden is None or heads is None:
            return None
        if hidden % heads:
            self._wrong(
                f"{self._key('hidden_size')} is {hidden}, which {self._key('attention_heads')}, {heads}, does not "
                "divide: change one of them, or add head_dim, the width of a head."
            )
        return hidden // heads or 1

    def _kv_heads(self, heads: int | None) -> int | None:
        if self._key("kv_rank"):
            return 1  # one cached vector serves every head
        key = self._key("kv_heads")
        if key == "multi_query_group_num" and self.said.get("multi_query_attention") is False:
            key = ""
        if not key and self.said.get("multi_query") is True:
            return 1
        if not key and "kv_heads" not in self.family.unsaid:
            return heads  # as many as there are heads: every head has its own keys
        found = self._whole(key, "kv_heads") if key else self.family.unsaid["kv_heads"]
        if found and heads and heads % found:
            below = max(size for size in range(1, min(found, heads) + 1) if heads % size == 0)
            self._wrong(
                f"{key or 'num_key_value_heads'} is {found}, which does not divide {heads}, the number of attention "
                f"heads: write one that does, such as {below}."
            )
        return found

    def _ffn_width(self, hidden: int | None) -> int | None:
        if (key := self._key("width")) and self._key("routed") and not self.dense_layers:
            return self._whole(
                key, "width"
            )  # every layer has experts, so no block is as wide as intermediate_size
        if key := self._key("ffn_width"):
            return self._whole(key, "ffn_width")
        if self.family.ffn_factor:
            return self.family.ffn_factor * hidden if hidden else None
        self._lacks("intermediate_size")
        return None

    def _experts(self, layers: int | None) -> Experts | None:
        if not (routed_key := self._key("routed")):
            says_null = any(key in self.said for key in _KEYS["routed"])
            if not says_null and (self._key("per_token") or self._key("width")):
                self._lacks("num_experts")
            return None
        routed, visited = self._whole(routed_key, "routed"), self._size("per_token")
        own_width = self._key("width")
        width = self._whole(own_width, "width") if own_width else self._size("ffn_width")
        shared = self._optional("shared_width") or self._optional("shared") * (width or 0)
        dense = self.dense_layers = self._dense_layers()
        if routed and visited and visited > routed:
            self._wrong(
                f"{self._key('per_token')} is {visited}, but {routed_key} is {routed}: a token cannot visit more "
                f"experts than there are, so write {routed} or less."
            )
        if layers and dense >= layers:
            self._wrong(
                f"The first {dense} layers are said to have no experts, but there are only {layers}: "
                "write fewer, or take the experts out."
            )
        if self.problems or not (routed and visited and width):
            return None
        return Experts(routed=routed, per_token=visited, width=width, shared_width=shared, dense_layers=dense)

    def _dense_layers(self) -> int:
        """The first layers without experts. Experts in every second layer, and the like, are refused."""
        first = self._optional("dense_layers")
        for key in _STEPS:
            value = self.said.get(key)
            if isinstance(value, list) and value and all(type(each) is int for each in value):
                zeros = value.index(1) if 1 in value else len(value)
                if value == [0] * zeros + [1] * (len(value) - zeros):
                    first = max(first, zeros)
                    continue
            if value is not None and (isinstance(value, bool) or value != 1):
                self._wrong(
                    f"{key} is {shown(value)}: the calculators know experts in every layer but the first few, "
                    "so write 1, or take another model."
                )
        ordinary = self.said.get("mlp_only_layers")
        if ordinary is not None:
            if ordinary != list(range(len(ordinary) if isinstance(ordinary, list) else 0)):
                self._wrong(
                    f"mlp_only_layers is {shown(ordinary)}: the calculators know layers without experts only before "
                    "all others, so write [], [0], [0, 1] and so on."
                )
            else:
                first = max(first, len(ordinary))
        return first

    def _window(self, layers: int | None) -> SlidingWindow | None:
        sliding = self._sliding_layers(layers)
        if not sliding:
            return None
        if not self._key("tokens"):
            self._lacks("sliding_window")
            return None
        tokens = self._whole("sliding_window", "tokens")
        return SlidingWindow(tokens=tokens, layers=sliding) if tokens else None

    def _sliding_layers(self, layers: int | None) -> int:
        """How many layers look through the window; 0 where none does."""
        kinds = self.said.get("layer_types")
        if kinds is not None:
            return self._sliding_in(kinds, layers)
        asked = self._truth("use_sliding_window", unsaid=not self.family.window_is_asked_for)
        if not asked or not self._key("tokens") or layers is None:
            return 0
        if self.family.window_is_asked_for:
            return max(0, layers - self._optional("full_layers"))
        every = self._optional("full_every") or self.family.full_every
        return layers - (layers // every if every else 0)

    def _sliding_in(self, kinds: object, layers: int | None) -> int:
        if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
            self._wrong(
                f"layer_types is {shown(kinds)}: write a list with the kind of each layer in quotation marks."
            )
            return 0
        other = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]
        if other:
            self._wrong(
                f"layer_types names {shown(other[0])}, a kind of layer that the calculators cannot count: take a "
                "model whose layers are all full_attention or sliding_attention."
            )
        if layers is not None and len(kinds) != layers:
            self._wrong(
                f"layer_types names {len(kinds):,} layers, but {self._key('layers')} is {layers:,}: make them agree."
            )
        return kinds.count("sliding_attention")

    def _element(self) -> int | None:
        key = "torch_dtype" if self.said.get("torch_dtype") is not None else "dtype"
        value = self.said.get(key)
        if value is None:
            return 2
        if isinstance(value, str) and value in _ELEMENTS:
            return _ELEMENTS[value]
        self._wrong(f"{key} is {shown(value)}: write one of {', '.join(_ELEMENTS)}.")
        return None

    def _say_what_is_missing(self) -> None:
        for key in self.family.needs:
            if key not in self.said:
                self._lacks(key)
        if self.missing:
            lacking = [f"{key} (it says null)" if key in self.said else key for key in self.missing]
            self._wrong(
                f"{self._kind} lacks {listed(lacking)}: add {'it' if len(lacking) == 1 else 'them'}, or give the "
                "whole file."
            )

    def _source(self) -> str:
        return self._kind if self.is_known else f"{self._kind}, read by the usual names"

    @property
    def _kind(self) -> str:
        if not self.type:
            return "A config.json without model_type"
        return f"A config.json of the {'' if self.is_known else 'unknown '}type {shown(self.type)}"


def _name(given: str, whole: Mapping[str, Any]) -> str:
    """What to call the model: as asked, or the file's own name or type, shortened to what an address carries."""
    own = whole.get("_name_or_path")
    path = own.rstrip("/").rpartition("/")[2] if isinstance(own, str) else ""
    kind = whole.get("model_type")
    for candidate in (given, path, kind if isinstance(kind, str) else ""):
        printable = "".join(filter(str.isprintable, candidate)).strip()
        if printable:
            return printable[:LONGEST_NAME].strip()
    return "config.json"
