"""The right answer drawn: a map where the facts say how large it is, and never before the answer."""

import re

import pytest

from calculators.predict.advisor import Facts, advise
from quizzes.bank import import_pack
from quizzes.packs.checking import check_pack
from quizzes.presenting.maps import layout_of, map_of_answer
from tests.quizzes.test_rules import HEADER, WIDE


def layout(**facts):
    known = Facts(**facts)
    return layout_of(known, advise(known))


def test_a_layer_that_is_too_wide_is_cut_over_the_devices_of_a_host():
    found = layout(phase="training", overflow="layer", moe=False, hosts=1, devices_per_host=8, wording="exam")

    assert (found["tp"], found["ranks_per_host"], found["phase"]) == ("8", "8", "training")


def test_a_stack_that_is_too_deep_is_dealt_out_and_a_long_sequence_shared():
    deep = layout(
        phase="training", overflow="stack", moe=False, layers=96, hosts=1, devices_per_host=8, wording="exam"
    )
    long = layout(
        phase="training", overflow="sequence", moe=False, tp=1, tokens=131_072, hosts=1, devices_per_host=8
    )

    assert (deep["pp"], deep["layers"]) == ("8", "96")
    assert (long["cp"], long["tokens"]) == ("8", "131072")


def test_facts_that_do_not_say_how_many_devices_there_are_draw_nothing():
    assert layout(phase="training", overflow="layer", moe=False) is None
    assert map_of_answer({"phase": "training", "overflow": "layer", "moe": "no"}) is None


def test_more_devices_than_a_map_can_show_draw_nothing():
    assert layout(phase="training", fits=True, wanted="throughput", hosts=64, devices_per_host=8) is None


@pytest.mark.django_db
def test_the_map_comes_with_feedback_and_not_before(write_pack, client, django_user_model):
    facts = 'facts: {phase: training, overflow: layer, moe: "no", wording: exam, hosts: "1", devices_per_host: "8"}'
    import_pack(check_pack(write_pack(re.sub(r"facts: \{.*?\}", facts, WIDE), header=HEADER)))
    client.force_login(django_user_model.objects.create_user("ada"))

    asked = client.get("/practice/p/wide/").content.decode()
    nonce = re.search(r'name="nonce" value="([^"]+)"', asked)[1]
    told = client.post(
        "/practice/p/wide/answer", {"nonce": nonce, "choice": "pp"}, follow=True
    ).content.decode()

    assert "<svg" not in asked.partition("<main")[2]
    assert "The right answer as a picture" in told
    assert "<svg" in told.partition("<main")[2]
    assert "bytes are those of a model with" in told
