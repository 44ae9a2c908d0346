"""What to change where a layout does not fit: every lever recalculated by hand, and which of them make it fit."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.devices import DEVICES
from calculators.predict.memory import PARTS, fits, room, serving_memory, training_memory
from calculators.predict.memory.levers import Serving, Training, largest_part, levers, memories, together
from calculators.predict.models.catalogue import MODELS
from calculators.predict.rules import check
from calculators.predict.shapes import Layout, Layouts, Phase, Recompute

LLAMA, MIXTRAL, DEEPSEEK = (MODELS[key].shape for key in ("llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"))
H100 = DEVICES["h100"]
TOO_MUCH = Training(shape=LLAMA, layout=Layout(tp=8, dp=8), tokens=8192, micro_batch=2, micro_batches=8)
LONG = Serving(shape=LLAMA, layout=Layout(tp=2), tokens=131_072, batch=8)


def by_key(case):
    return {lever.key: lever for lever in levers(case, H100)}


def test_a_case_is_calculated_by_the_same_functions():
    trained = training_memory(LLAMA, Layouts.of(TOO_MUCH.layout, micro_batch=2), tokens=8192, micro_batches=8)
    served = serving_memory(LLAMA, Layouts(tp=2), batch=8, context_tokens=131_072)

    for part in PARTS:
        assert getattr(TOO_MUCH.memory, part) == getattr(trained, part)
        assert getattr(LONG.memory, part) == getattr(served, part)


def test_training_names_every_lever_once():
    assert set(by_key(TOO_MUCH)) == {
        "sp",
        "recompute-selective",
        "recompute-full",
        "zero-1",
        "zero-2",
        "zero-3",
        "micro-batch",
        "tp-16",
        "pp-2",
        "cp-2",
    }


def test_serving_names_every_lever_once():
    assert set(by_key(LONG)) == {"kv-8", "kv-4", "weights-8", "weights-4", "batch", "context", "tp-4", "pp-2"}


def test_what_is_turned_on_already_is_no_lever():
    done = dataclasses.replace(
        TOO_MUCH, layout=Layout(tp=8, dp=8, sp=True, zero=3), recompute=Recompute.FULL, micro_batch=1
    )

    assert set(by_key(done)) == {"tp-16", "pp-2", "cp-2"}


def test_experts_are_shared_out_by_a_lever_of_their_own():
    case = Training(shape=MIXTRAL, layout=Layout(dp=8, ep=2), tokens=4096)

    lever = by_key(case)["ep-4"]

    assert lever.case.layout == Layout(dp=8, ep=4)
    assert (lever.family, lever.devices) == ("ep", 0)


def test_replicas_make_room_for_a_wider_group_where_they_can_be_shared_out():
    found = by_key(TOO_MUCH)["tp-16"], by_key(LONG)["tp-4"]

    assert [lever.devices for lever in found] == [0, 2]
    assert [lever.case.layout for lever in found] == [Layout(tp=16, dp=4), Layout(tp=4)]


def test_a_lever_says_what_it_leaves_and_whether_that_fits():
    for lever in levers(LONG, H100):
        assert lever.saved_bytes == LONG.memory.total - lever.case.memory.total
        assert lever.fits == bool(fits(lever.case.memory, H100))


def test_levers_come_in_the_order_of_what_they_save():
    saved = [lever.saved_bytes for lever in levers(TOO_MUCH, H100)]

    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0


def test_those_that_alone_make_it_fit_are_told():
    case = Training(
        shape=MODELS["llama-3.1-8b"].shape, layout=Layout(dp=8), tokens=4096, recompute=Recompute.FULL
    )

    assert not fits(case.memory, H100)
    assert {lever.key for lever in levers(case, H100) if lever.fits} >= {"zero-1", "zero-2", "zero-3", "tp-2"}


def test_the_largest_part_is_named():
    assert largest_part(TOO_MUCH.memory) == "activations"
    assert largest_part(LONG.memory) == "kv_cache"
    assert largest_part(dataclasses.replace(LONG, tokens=10).memory) == "weights"


def test_gentle_levers_are_pulled_first_and_lead_to_a_fit():
    pulled = together(TOO_MUCH, H100)

    assert [lever.key for lever in pulled] == ["recompute-selective", "zero-2", "sp", "recompute-full"]
    assert fits(pulled[-1].case.memory, H100)
    assert not any(fits(lever.case.memory, H100) for lever in pulled[:-1])


def test_serving_less_is_the_last_resort():
    keys = [lever.key for lever in together(LONG, H100)]

    assert keys[:2] == ["kv-8", "weights-8"]
    assert not {"batch", "context"} & set(keys)


def test_nothing_is_pulled_where_it_fits_or_cannot():
    fine = Serving(shape=LLAMA, layout=Layout(tp=8), tokens=512)
    hopeless = Training(shape=DEEPSEEK, layout=Layout(), tokens=131_072, micro_batch=32)

    assert together(fine, H100) == ()
    assert together(hopeless, H100) == ()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_lever_breaks_no_rule_that_held_before(data):
    choose = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    shape = choose(LLAMA, MIXTRAL, DEEPSEEK, MODELS["phi-4"].shape, MODELS["gpt-oss-20b"].shape)
    dp, tp, pp = choose(1, 2, 3, 8), choose(1, 2, 4, 5), choose(1, 2, 4)
    layout = Layout(dp=dp, tp=tp, pp=pp, cp=choose(1, 2), sp=choose(False, True))
    case = Training(shape=shape, layout=layout, tokens=choose(1000, 4096, 8192), micro_batch=choose(1, 4))

    def broken(layout):
        return {
            found.rule
            for found in check(
                shape, layout, phase=Phase.TRAINING, tokens=case.tokens, uneven_stages=shape.layers == 61
            )
        }

    for lever in levers(case, H100):
        assert broken(lever.case.layout) <= broken(layout), lever


def test_many_cases_are_calculated_in_one_pass():
    cases = [dataclasses.replace(LONG, batch=batch) for batch in (1, 2, 4)]

    together_ = [memory.total.item() for memory in memories(cases)]

    assert together_ == [case.memory.total.item() for case in cases]
    assert memories([]) == []


def test_a_reserve_that_is_no_share_is_refused():
    with pytest.raises(
        ValueError, match=r"^reserve is 2, but it is the share of a device's memory that stays free"
    ):
        levers(LONG, H100, reserve=2)


def test_more_reserve_leaves_less_room():
    assert np.all(np.diff(room(H100, reserve=[0, 0.1, 0.5])) < 0)


@pytest.mark.parametrize("key", ["llama-3.1-70b", "deepseek-v3", "mixtral-8x7b"])
@pytest.mark.parametrize("serves", [False, True], ids=["training", "serving"])
def test_the_first_that_is_pulled_together_is_the_cheapest_of_all_levers(key, serves):
    shape, layout = MODELS[key].shape, Layout(tp=8, dp=64)
    case = (
        Serving(shape=shape, layout=Layout(tp=2), tokens=131_072, batch=32)
        if serves
        else Training(shape=shape, layout=layout, tokens=8192, micro_batch=2, micro_batches=8)
    )
    found = levers(case, H100)

    assert together(case, H100) == together(case, H100, known=found) != ()
