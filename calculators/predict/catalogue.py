"""Models that people ask about, each with the source of its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from calculators.predict.parameters import total_parameters
from calculators.predict.shapes import ModelShape


@dataclass(frozen=True, kw_only=True)
class Model:
    """One preset: a `shape` and the published count [parameters]."""

    key: str
    shape: ModelShape
    published_parameters: float | None = None

    @property
    def parameters(self) -> int:
        """Parameters that these sizes make."""
        return total_parameters(self.shape)


def _dense(
    key: str,
    name: str,
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    source: str,
    published: float | None,
    gated: bool = True,
    tied: bool = False,
    positions: int = 0,
    head_dim: int = 128,
) -> Model:
    shape = ModelShape(
        name=name,
        hidden_size=hidden,
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_width=ffn,
        vocab_size=vocab,
        bytes_per_element=2,  # all of them were released in fp16 or bf16
        source=source,
        gated=gated,
        tied_embeddings=tied,
        positions=positions,
    )
    return Model(key=key, shape=shape, published_parameters=published)


_LITGPT = "config.json on Hugging Face, as litgpt/config.py lists it"

_MODELS = (
    _dense(
        "lesson",
        "The lessons' round numbers",
        hidden=4096,
        layers=64,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocab=128256,
        source="no published model: 64 layers of Llama 3.1 8B's width",
        published=None,
    ),
    _dense(
        "llama-3.1-8b",
        "Llama 3.1 8B",
        hidden=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocab=128256,
        source=_LITGPT,
        published=8.03e9,
    ),
    _dense(
        "llama-3.1-70b",
        "Llama 3.1 70B",
        hidden=8192,
        layers=80,
        heads=64,
        kv_heads=8,
        ffn=28672,
        vocab=128256,
        source=_LITGPT,
        published=70.6e9,
    ),
    _dense(
        "llama-3.1-405b",
        "Llama 3.1 405B",
        hidden=16384,
        layers=126,
        heads=128,
        kv_heads=8,
        ffn=53248,
        vocab=128256,
        source=_LITGPT,
        published=405.9e9,
    ),
    _dense(
        "llama-2-7b",
        "Llama 2 7B",
        hidden=4096,
        layers=32,
        heads=32,
        kv_heads=32,
        ffn=11008,
        vocab=32000,
        source=_LITGPT,
        published=6.74e9,
    ),
    _dense(
        "qwen3-32b",
        "Qwen3 32B",
        hidden=5120,
        layers=64,
        heads=64,
        kv_heads=8,
        ffn=25600,
        vocab=151936,
        source=_LITGPT,
        published=32.8e9,
    ),
    _dense(
        "qwen2.5-72b",
        "Qwen2.5 72B",
        hidden=8192,
        layers=80,
        heads=64,
        kv_heads=8,
        ffn=29568,
        vocab=152064,
        source=_LITGPT,
        published=72.7e9,
    ),
    _dense(
        "phi-4",
        "Phi-4",
        hidden=5120,
        layers=40,
        heads=40,
        kv_heads=10,
        ffn=17920,
        vocab=100352,
        source=_LITGPT,
        published=14.7e9,
    ),
    _dense(
        "gpt-3-175b",
        "GPT-3 175B",
        hidden=12288,
        layers=96,
        heads=96,
        kv_heads=96,
        ffn=49152,
        vocab=50257,
        gated=False,
        tied=True,
        positions=2048,
        source="Megatron-LM examples/gpt3/train_gpt3_175b_distributed.sh",
        published=175e9,
    ),
    _dense(
        "megatron-530b",
        "Megatron 530B",
        hidden=20480,
        layers=105,
        heads=128,
        kv_heads=128,
        ffn=81920,
        vocab=51200,
        gated=False,
        tied=True,
        positions=2048,
        head_dim=160,
        source="Megatron-LM examples/sc21/run_table_1.sh (Narayanan 2021, table 1)",
        published=529.6e9,
    ),
)
MODELS = {model.key: model for model in _MODELS}


def model(key: str) -> Model:
    """The preset with this key. Raises ValueError that names them all."""
    if key not in MODELS:
        raise ValueError(f"model is {key!r}, which is not in the catalogue. Use one of: {', '.join(MODELS)}.")
    return MODELS[key]
