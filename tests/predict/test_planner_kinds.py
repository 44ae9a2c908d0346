"""Kinds of layouts, asked about in the same pass: what a plan over their part of the space says."""

from dataclasses import replace

import pytest

from calculators.predict.planner import AXES, COLUMNS, plan
from tests.predict.sentences import exactly
from tests.predict.test_planner import random_task

KINDS = {
    "no tensor parallelism": {"tp": (1, 1)},
    "tensor parallelism": {"tp": (2, 64)},
    "no pipeline, plain replicas": {"pp": (1, 1), "zero": (0, 0)},
    "sequence parallelism": {"sp": (1, 1)},
    "experts spread": {"ep": (2, 64)},
}


@pytest.mark.parametrize("seed", range(40))
def test_a_kind_is_what_a_plan_over_its_part_of_the_space_finds(seed):
    task, space = random_task(seed)

    found = plan(task, space, kinds=KINDS).kinds

    for name, kind in KINDS.items():
        part = {
            axis: tuple(value for value in getattr(space, axis) if least <= value <= most)
            for axis, (least, most) in kind.items()
        }
        if not all(part.values()):
            assert found[name].legal == 0
            continue
        alone = plan(task, replace(space, **part), count=1)
        assert found[name].legal == alone.legal
        for mine, theirs in ((found[name].best, alone.best), (found[name].smallest, alone.smallest)):
            if mine is None:
                assert theirs is None or not len(theirs)
            elif mine is found[name].best:
                assert [mine[axis][0] for axis in AXES] == [theirs[axis][0] for axis in AXES]
                for column in COLUMNS:  # the last bit depends on which parts of a sum are the smaller arrays
                    assert mine[column][0] == pytest.approx(theirs[column][0], rel=1e-14, abs=0), column
            else:  # many may need as little: which one is named is no matter
                assert mine["memory_bytes"][0] == pytest.approx(theirs["memory_bytes"][0])


def test_a_plan_is_the_same_whatever_kinds_are_asked_about():
    task, space = random_task(3)

    plain, asked = plan(task, space), plan(task, space, kinds=KINDS)

    assert plain.kinds == {}
    assert (plain.legal, plain.fitting) == (asked.legal, asked.fitting)
    for axis in AXES:
        assert plain.best[axis].tolist() == asked.best[axis].tolist()


def test_a_kind_of_unknown_axes_is_refused():
    task, space = random_task(3)
    sentence = (
        "A kind of layouts is about 'tpp', but the axes are dp, tp, cp, pp, ep, etp, sp, vpp, micro_batch, zero, "
        "recompute. Use those."
    )

    with pytest.raises(ValueError, match=exactly(sentence)):
        plan(task, space, kinds={"some": {"tpp": (1, 1)}})
