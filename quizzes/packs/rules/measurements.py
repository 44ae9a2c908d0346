"""Questions that a run is held against: their experiment exists, and its plan predicts what they calculate."""

from collections.abc import Iterator, Sequence
from functools import cache

from calculators.lab.compare import Comparison
from calculators.lab.devices import Placement
from calculators.lab.guided import GUIDED
from calculators.lab.measurements import Measurement
from calculators.lab.plan import make_plan
from calculators.lab.spec import experiment, experiment_names
from quizzes.measured import NotMeasured, read
from quizzes.packs.checking import CheckedPack
from quizzes.packs.rules.doubts import Doubt, at_question


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Unknown experiments, and measured quantities that are not the one that the question calculates."""
    for pack in packs:
        for question in pack.questions:
            verify = question.content.verify
            if verify is None or not verify.lab:
                continue
            if verify.lab not in experiment_names() and verify.lab not in GUIDED:
                yield at_question(pack, question, "lab", f"verify: the lab has no experiment {verify.lab}.")
            elif verify.measure and verify.lab not in experiment_names():
                yield at_question(
                    pack,
                    question,
                    "lab",
                    f"verify: {verify.lab} is a guided experiment of several runs; measure one of a single spec.",
                )
            elif verify.measure:
                try:
                    reading = read(verify, experiment(verify.lab), _as_planned(verify.lab))
                except NotMeasured as error:
                    yield at_question(pack, question, "lab", f"verify: {error}")
                    continue
                if not reading.agrees(verify.rtol):
                    yield at_question(
                        pack,
                        question,
                        "lab",
                        f"verify: calc gives {reading.calculated:g} {reading.unit} for {verify.lab}, whose plan says "
                        f"{reading.measured:g}. They are not the same quantity.",
                    )


@cache
def _as_planned(name: str) -> list[Comparison]:
    """A run of the experiment in which every meter reads what its plan says, on CPU ranks and gloo."""
    spec = experiment(name)
    plan = make_plan(spec, Placement(device="cpu", backend="gloo", staged=False, note=""))
    return [
        Comparison(
            prediction=p,
            measurement=Measurement(
                quantity=p.quantity,
                rank=p.rank,
                peer=p.peer,
                detail=p.detail,
                value=p.predicted,
                steps=spec.steps,
            ),
        )
        for p in plan.predictions
    ]
