"""What learners can ask to be asked about: symptoms, distractors and self-checks, as questions are tagged."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A tag that questions carry, and its words for learners, which give no answer away."""

    tag: str
    name: str
    group: str


_GROUPS = {
    "Symptoms": {
        "symptom-idle-gpus": "Slow, though it fits",
        "symptom-wide-layer": "One layer exceeds a device",
        "symptom-deep-stack": "Each layer fits, their number does not",
        "symptom-beside-tp": "Activations beside tensor parallelism",
        "symptom-long-sequence": "One very long sequence",
        "symptom-many-experts": "Experts that do not fit",
    },
    "Where wrong answers sound right": {
        "distractor-tp-pp": "Tensor and pipeline, swapped",
        "distractor-sp-cp": "Sequence and context, taken for one",
        "distractor-ep-dense": "Experts in a dense model",
        "distractor-dp-capacity": "Replicas for a model that does not fit",
    },
    "A home cluster, five checks": {
        "self-check-1": "Transfers of a token",
        "self-check-2": "Two machines of two devices",
        "self-check-3": "One conversation, faster",
        "self-check-4": "Experts over a home network",
        "self-check-5": "Weights that do not fit",
    },
    "Composed": {"two-servers": "Two servers, one model"},
}
SUBJECTS = {
    tag: Subject(tag=tag, name=name, group=group)
    for group, tags in _GROUPS.items()
    for tag, name in tags.items()
}
"""Every subject by its tag, in the order in which pages list them."""
