"""The parts of memory as the page names, explains and paints them."""

NAMES = {
    "weights": "Weights",
    "gradients": "Gradients",
    "optimizer": "Optimizer’s state",
    "activations": "Activations",
    "kv_cache": "KV cache",
    "working": "Working memory",
}
HEADS = {"optimizer": "Optimizer", "working": "Working"}
MEANINGS = {
    "weights": "the parameters of this device’s layers, or its slice of them",
    "gradients": "one for every weight",
    "optimizer": "what Adam remembers of every weight, and its master copy",
    "activations": "what layers keep for the backward pass",
    "kv_cache": "the keys and values of all tokens so far",
    "working": "a layer gathered whole, or computed again",
}
LOOKS = {  # colour and pattern of a bar
    "weights": ("ink", ""),
    "gradients": ("ink", "/"),
    "optimizer": ("ink", "."),
    "activations": ("accent", "x"),
    "kv_cache": ("accent", "-"),
    "working": ("muted", "|"),
}
