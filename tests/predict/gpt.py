"""GPT models by their sizes alone, as papers give them: two-matrix feed-forward of four times the width."""

from calculators.predict.shapes import ModelShape

GIB = 2**30


def gpt(hidden, layers, heads, *, vocab=51200):
    return ModelShape(
        name=f"GPT of {layers} × {hidden}",
        hidden_size=hidden,
        layers=layers,
        attention_heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_width=4 * hidden,
        vocab_size=vocab,
        bytes_per_element=2,
        source="made for a test",
        gated=False,
        tied_embeddings=True,
    )


# Korthikanti 2022, arXiv 2205.05198, table 3 and figure 1: shape, micro-batch, p, v; all with t = 8 and s = 2048
KORTHIKANTI = {
    "22B": (gpt(6144, 48, 64), 4, 1, 1),
    "175B": (gpt(12288, 96, 96), 1, 8, 3),
    "530B": (gpt(20480, 105, 128), 1, 35, 3),
    "1T": (gpt(25600, 128, 160), 1, 64, 1),
}
