"""What makes a bank of questions good beyond each question being in order: one rule a file.

Every rule looks at all packs together and yields what it doubts, each with the question or the pack that it stands in.
`ALL` is their order; `manage.py packs check` and CI run them over the packs that come with the site.
"""

from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack
from quizzes.packs.findings import Finding
from quizzes.packs.rules import (
    advice,
    beliefs,
    guessing,
    likeness,
    measurements,
    pairs,
    reading,
    scenarios,
    truth,
)

ALL = (
    beliefs.findings,
    scenarios.findings,
    pairs.findings,
    likeness.findings,
    guessing.findings,
    advice.findings,
    measurements.findings,
    reading.findings,
    truth.findings,
)


def findings(packs: Sequence[CheckedPack]) -> Iterator[tuple[CheckedPack, Finding]]:
    """Everything that the rules doubt in `packs`, pack by pack, in the order of their files."""
    found = [doubt for rule in ALL for doubt in rule(packs)]
    for pack in packs:
        yield from sorted(
            ((owner, finding) for owner, finding in found if owner is pack), key=lambda doubt: doubt[1]
        )
