"""Which sizes divide which: the cases that trackers are full of, and a check by brute force."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.catalogue import MODELS
from calculators.predict.rules import RULES, check, nearest_sizes, sizes_that_work
from calculators.predict.shapes import Layout
from tests.predict.sentences import exactly

LLAMA_70B = MODELS["llama-3.1-70b"].shape
PHI_4 = MODELS["phi-4"].shape


def test_64_heads_cannot_be_cut_six_ways():
    found = check(LLAMA_70B, Layout(tp=6))

    assert [violation.rule for violation in found] == ["R1", "R2"]
    assert found[0].sentence == (
        "tp is 6, but 6 ranks cannot share 64 attention heads equally. Nearest that work: 4 or 8."
    )


def test_phi_4_at_tp_4_breaks_only_the_key_value_rule():
    [found] = check(PHI_4, Layout(tp=4))

    assert found.sentence == (
        "tp is 4, but 10 key-value heads can neither be shared equally by 4 ranks nor repeated equally on "
        "them. Nearest that work: 2 or 5."
    )


def test_80_layers_do_not_make_three_equal_stages():
    [found] = check(LLAMA_70B, Layout(pp=3))

    assert (found.rule, found.axis, found.nearest) == ("R4", "pp", (2, 4))
    assert found.sentence == (
        "pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4."
    )


def test_more_ranks_than_heads_have_one_nearest_size_and_the_sentence_says_works():
    found = check(LLAMA_70B, Layout(tp=100))

    assert found[0].sentence.endswith("Nearest that works: 64.")


def test_every_broken_rule_is_reported_at_once():
    assert [violation.rule for violation in check(LLAMA_70B, Layout(tp=3, pp=7))] == ["R1", "R2", "R4"]


def test_key_value_heads_may_be_repeated_when_ranks_outnumber_them():
    assert check(LLAMA_70B, Layout(tp=16)) == ()


def test_96_heads_divide_in_the_documented_ways():
    assert sizes_that_work(MODELS["gpt-3-175b"].shape, "tp") == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96)


def test_a_size_that_works_is_its_own_nearest():
    assert nearest_sizes(LLAMA_70B, "pp", 16) == (16,)


def test_every_rule_names_who_enforces_it():
    assert all(rule.source for rule in RULES)


@given(tp=st.integers(1, 70), pp=st.integers(1, 90))
def test_the_rules_agree_with_sharing_out_one_by_one(tp, pp):
    def shared(things, among):
        piles = [0] * among
        for thing in range(things):
            piles[thing % among] += 1
        return len(set(piles)) == 1

    heads = shared(64, tp) and (shared(8, tp) or shared(tp, 8))

    assert (check(LLAMA_70B, Layout(tp=tp, pp=pp)) == ()) == (heads and shared(80, pp))


@given(heads=st.integers(1, 64), tp=st.integers(1, 80))
def test_the_nearest_sizes_always_work(heads, tp):
    shape = dataclasses.replace(LLAMA_70B, attention_heads=heads, kv_heads=heads)

    for violation in check(shape, Layout(tp=tp)):
        assert all(check(shape, Layout(tp=size)) == () for size in violation.nearest)


def test_an_axis_without_rules_is_refused_in_a_sentence():
    sentence = "axis is 'dp', but the rules here are about tp and pp. Use one of those."

    with pytest.raises(ValueError, match=exactly(sentence)):
        sizes_that_work(LLAMA_70B, "dp")
