"""The adviser answers the procedures of both lessons, names what it turns down, and asks for what would change it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.advisor import (
    CHOICES,
    FAMILIES,
    PROCEDURE,
    QUESTIONS,
    Facts,
    Finding,
    Remedy,
    Technique,
    advise,
    ask_next,
)
from tests.predict.sentences import exactly

T, F, R = Technique, Finding, Remedy

SIX_SYMPTOMS = {
    "an epoch takes days, and the model fits": (
        Facts(phase="training", fits=True, wanted="throughput", moe=False),
        T.DATA,
        (T.TENSOR, T.PIPELINE, T.SHARDED_DATA),
    ),
    "one block's feed-forward matrices exceed a GPU at batch 1": (
        Facts(phase="training", overflow="layer", moe=False),
        T.TENSOR,
        (T.PIPELINE, T.DATA, T.EXPERT, R.UMBRELLA),
    ),
    "120 layers, each fits, the set does not": (
        Facts(phase="training", overflow="stack", layers=120, moe=False),
        T.PIPELINE,
        (T.TENSOR, T.DATA, T.EXPERT, R.UMBRELLA),
    ),
    "TP 8 already, trim the activations beside it": (
        Facts(phase="training", overflow="activations", tp=8),
        T.SEQUENCE,
        (T.CONTEXT, T.TENSOR, T.DATA),
    ),
    "plain DP, one document of 128K tokens overflows every GPU alike": (
        Facts(phase="training", overflow="sequence", tokens=131_072, dp=8, tp=1),
        T.CONTEXT,
        (T.SEQUENCE, T.DATA, T.TENSOR),
    ),
    "64 experts a layer, holding them is what does not fit": (
        Facts(phase="training", overflow="experts", moe=True, experts=64, hosts=1, devices_per_host=8),
        T.EXPERT,
        (T.DATA, T.TENSOR, T.PIPELINE, R.UMBRELLA),
    ),
}


@pytest.mark.parametrize("wording", ["exam", "practice"])
@pytest.mark.parametrize("symptom", list(SIX_SYMPTOMS))
def test_each_of_the_six_symptoms_has_its_family(symptom, wording):
    """CURRICULUM A10."""
    facts, family, tempting = SIX_SYMPTOMS[symptom]

    advice = advise(replace(facts, wording=wording))

    assert (advice.technique, advice.finding) == (family, None)
    assert all(advice.reason_against(option) for option in tempting)


def test_expert_parallelism_gets_a_size_that_divides_the_experts():
    facts = SIX_SYMPTOMS["64 experts a layer, holding them is what does not fit"][0]

    assert advise(facts).axes == {"ep": 8}
    assert advise(replace(facts, devices_per_host=6)).axes == {"ep": 4}


def test_one_of_each_symptom_needs_a_composition_of_their_families():
    advice = advise(Facts(phase="training", overflow=("stack", "experts"), moe=True))

    assert (advice.technique, advice.families) == (T.COMPOSITION, (T.PIPELINE, T.EXPERT))


class TestTheExamLesson:
    def test_its_first_fork_is_whether_it_fits(self):
        """CURRICULUM A1."""
        assert advise(Facts(fits=True, phase="training")).technique is T.DATA
        assert advise(Facts(fits=False, phase="training")).technique is T.ASK_MORE
        assert "fit" in ask_next(Facts(phase="training"))[0].asks
        assert ask_next(Facts(phase="training", fits=False))[0].fact == "overflow"

    def test_two_servers_of_eight_split_inside_and_between(self):
        """CURRICULUM A11: dense, 96 layers, wide, two NVLink servers with a slow network between."""
        advice = advise(
            Facts(
                wording="exam",
                phase="training",
                overflow=("layer", "stack"),
                moe=False,
                layers=96,
                attention_heads=96,
                kv_heads=96,
                hosts=2,
                devices_per_host=8,
                link_inside="fast",
                link_between="slow",
            )
        )

        assert (advice.technique, advice.families) == (T.COMPOSITION, (T.TENSOR, T.PIPELINE))
        assert advice.label == "Tensor and pipeline parallelism"
        assert advice.axes == {"tp": 8, "pp": 2}
        assert advice.reason_against(T.EXPERT) == "The model is dense: it has no experts to place."
        assert "can be added" in advice.reason_against(T.SEQUENCE)
        assert "another host" in advice.reason_against(R.MORE_TENSOR)

    @pytest.mark.parametrize(
        ("facts", "distractor", "reason"),
        [
            # CURRICULUM A13: TP and PP swapped, SP and CP as synonyms, EP for a dense model, DP for one too large.
            (Facts(overflow="layer"), T.PIPELINE, "A stage holds whole layers"),
            (Facts(overflow="stack"), T.TENSOR, "It cuts layers that fit"),
            (Facts(overflow="sequence", tp=1), T.SEQUENCE, "Without one it does nothing"),
            (Facts(overflow="activations", tp=8), T.CONTEXT, "Sequence parallelism comes first"),
            (Facts(overflow="layer", moe=False), T.EXPERT, "The model is dense"),
            (Facts(overflow="stack"), T.DATA, "A plain replica is the whole model"),
            (Facts(overflow="layer"), T.SHARDED_DATA, "gathers each layer whole"),
            (Facts(overflow="layer"), T.CONTEXT, "leaves the whole weights on every device"),
            (Facts(overflow="layer"), R.UMBRELLA, "Tensor parallelism is the most specific one"),
        ],
    )
    def test_each_distractor_is_turned_down_for_its_own_reason(self, facts, distractor, reason):
        advice = advise(replace(facts, wording="exam", phase="training"))

        assert reason in advice.reason_against(distractor)

    def test_plain_replicas_do_not_lower_memory_and_sharded_ones_do(self):
        advice = advise(Facts(phase="training", overflow="model-states"))

        assert advice.technique is T.SHARDED_DATA
        assert "Plain replicas hold all of it" in advice.reason_against(T.DATA)


class TestTheHomeClusterLesson:
    @pytest.mark.parametrize(
        ("facts", "technique", "axes"),
        [
            # CURRICULUM B9: fits one node → TP; larger → TP = GPUs in a node, PP = nodes.
            (
                Facts(fits=False, hosts=1, devices_per_host=4, link_inside="fast"),
                T.TENSOR,
                {"tp": 4},
            ),
            (
                Facts(fits=False, hosts=2, devices_per_host=2, link_inside="fast", link_between="slow"),
                T.COMPOSITION,
                {"tp": 2, "pp": 2},
            ),
            # B11: fits across machines → PP.
            (
                Facts(fits=False, hosts=2, devices_per_host=1, link_between="ethernet-10"),
                T.PIPELINE,
                {"pp": 2},
            ),
            (Facts(fits=True, hosts=3, wanted="throughput"), T.DATA, {}),
        ],
    )
    def test_its_order_of_choosing(self, facts, technique, axes):
        advice = advise(replace(facts, phase="serving"))

        assert (advice.technique, advice.axes) == (technique, axes)

    def test_a_cache_that_does_not_fit_is_a_matter_of_the_sequence(self):
        facts = Facts(phase="serving", fits=True, overflow="kv-cache", wording="exam")

        assert (advise(facts).technique, advise(facts).finding) == (T.CONTEXT, F.KV_CACHE)

    def test_in_practice_its_heads_are_shared_first_and_its_tokens_after_that(self):
        facts = Facts(phase="serving", fits=True, overflow="kv-cache", kv_heads=8, devices_per_host=16)

        assert advise(replace(facts, tp=4)).technique is T.TENSOR
        assert advise(replace(facts, tp=8)).technique is T.CONTEXT

    def test_only_a_split_inside_every_layer_speeds_up_one_conversation(self):
        """CURRICULUM B14."""
        facts = Facts(phase="serving", fits=True, wanted="latency", devices_per_host=2, link_inside="fast")
        advice = advise(facts)

        assert advice.technique is T.TENSOR
        assert "stages in turn" in advice.reason_against(T.PIPELINE)
        assert advise(replace(facts, link_inside="pcie-4")).technique is T.DO_NOT_SPLIT
        assert advise(replace(facts, devices_per_host=1)).technique is T.DO_NOT_SPLIT

    def test_two_hosts_of_one_device_on_rdma_may_share_layers_for_one_user(self):
        facts = Facts(phase="serving", fits=False, hosts=2, devices_per_host=1)
        spark = replace(facts, link_between="connectx-7-spark")

        assert advise(replace(spark, wanted="latency")).technique is T.TENSOR
        assert advise(spark).technique is T.PIPELINE
        assert advise(replace(facts, link_between="ethernet-10", wanted="latency")).technique is T.PIPELINE

    def test_the_smallest_group_that_holds_it_fills_the_host_with_replicas(self):
        facts = Facts(phase="serving", fits=False, hosts=1, devices_per_host=8, wanted="throughput")

        assert advise(replace(facts, devices_to_fit=3)).axes == {"dp": 2, "tp": 4}
        assert advise(replace(facts, devices_to_fit=8)).axes == {"tp": 8}

    def test_heads_decide_how_far_a_layer_is_shared(self):
        """40 heads on 6 devices: 2 ways in each of 3 stages."""
        facts = Facts(
            phase="serving", fits=False, hosts=1, devices_per_host=6, attention_heads=40, kv_heads=8
        )
        three = advise(replace(facts, devices_per_host=3))

        assert advise(facts).axes == {"tp": 2, "pp": 3}
        assert (three.technique, three.axes) == (T.PIPELINE, {"pp": 3})
        assert three.reason_against(T.TENSOR) == "The heads do not divide 3 ways."

    def test_context_parallelism_does_not_help_weights_that_do_not_fit(self):
        advice = advise(Facts(phase="serving", fits=False, hosts=2, devices_per_host=1))

        assert "leaves the whole weights" in advice.reason_against(T.CONTEXT)

    def test_where_it_fits_and_only_room_is_wanted_nothing_is_split(self):
        assert advise(Facts(phase="serving", fits=True, wanted="capacity")).technique is T.DO_NOT_SPLIT
        assert (
            advise(Facts(phase="serving", fits=True, hosts=1, devices_per_host=1)).technique is T.DO_NOT_SPLIT
        )


class TestExamAndPractice:
    @pytest.mark.parametrize(
        ("facts", "exam", "practice"),
        [
            # CURRICULUM D: experts over a slow link; the host without NVLink; the cache.
            (
                Facts(
                    phase="serving",
                    overflow="experts",
                    moe=True,
                    hosts=4,
                    devices_per_host=1,
                    link_between="ethernet-10",
                ),
                T.EXPERT,
                T.PIPELINE,
            ),
            (
                Facts(phase="serving", fits=False, hosts=1, devices_per_host=4, link_inside="pcie-5"),
                T.TENSOR,
                T.PIPELINE,
            ),
            (
                Facts(phase="serving", fits=True, overflow="kv-cache", kv_heads=8),
                T.CONTEXT,
                T.TENSOR,
            ),
        ],
    )
    def test_where_they_differ_each_has_the_other_beside_it(self, facts, exam, practice):
        asked = advise(replace(facts, wording="exam"))
        done = advise(facts)

        assert (asked.technique, asked.otherwise.technique) == (exam, practice)
        assert (done.technique, done.otherwise.technique) == (practice, exam)

    def test_where_they_agree_there_is_one_answer(self):
        assert advise(Facts(phase="training", overflow="layer")).otherwise is None

    def test_experts_stay_inside_hosts_that_have_a_fast_link(self):
        facts = Facts(
            phase="serving",
            overflow="experts",
            moe=True,
            experts=64,
            hosts=2,
            devices_per_host=8,
            link_inside="fast",
            link_between="slow",
        )

        assert (advise(facts).technique, advise(facts).axes) == (T.EXPERT, {"ep": 8})


class TestAsking:
    def test_only_what_would_change_the_advice_is_asked(self):
        asked = [question.fact for question in ask_next(Facts(phase="training", overflow="layer"))]

        assert "wanted" not in asked
        assert "phase" not in asked

    def test_the_answers_one_after_another_lead_to_a_technique(self):
        facts = Facts()
        asked = []
        while advise(facts).technique is T.ASK_MORE:
            question = ask_next(facts)[0]
            asked.append(question.fact)
            answers = {"fits": False, "overflow": "stack"}
            value = answers.get(question.fact, question.choices[0][0])
            facts = replace(facts, **{question.fact: value})

        assert asked == ["fits", "overflow"]
        assert advise(facts).technique is T.PIPELINE

    @settings(max_examples=100, deadline=None)
    @given(data=st.data())
    def test_whatever_is_answered_the_questions_end_in_a_technique(self, data):
        facts = Facts(phase=data.draw(st.sampled_from(["training", "serving"])))
        for _ in QUESTIONS:
            if not (left := ask_next(facts)):
                break
            value = data.draw(st.sampled_from([value for value, _ in left[0].choices]))
            facts = replace(facts, **{left[0].fact: value})

        assert advise(facts).technique is not T.ASK_MORE

    def test_every_question_offers_answers_that_facts_take(self):
        for question in QUESTIONS:
            assert question.asks.endswith("?")
            assert len(question.choices) > 1
            for value, words in question.choices:
                assert words
                Facts(**{question.fact: value})


ANY_FACTS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.sampled_from(list(choices)) for name, choices in CHOICES.items()},
        **{name: st.integers(1, 9) for name in ("hosts", "devices_per_host", "tp", "pp", "cp", "ep")},
        **{name: st.integers(1, 40) for name in ("attention_heads", "kv_heads", "layers", "experts")},
        **{name: st.floats(0, 2) for name in ("speed_over_alone", "device_busy", "link_busy")},
        "share_of_memory_ceiling": st.floats(0, 1),
        "hottest_over_mean": st.floats(1, 4),
        "seconds_per_exchange": st.floats(0, 1),
        "link_between": st.sampled_from(["fast", "slow", "wan", "ethernet-1", "nvlink-4"]),
        "link_inside": st.sampled_from(["fast", "slow", "pcie-5"]),
        "sp": st.booleans(),
        "zero": st.integers(0, 3),
        "requests": st.integers(1, 99),
        "micro_batches": st.integers(1, 99),
        "tokens": st.integers(1, 99_999),
        "devices_to_fit": st.integers(1, 9),
        "faster_link_helped": st.booleans(),
        "memory_falls_with_devices": st.booleans(),
        "slower_with_more_hosts": st.booleans(),
        "tool": st.sampled_from(["vllm", "megatron", "torchtitan"]),
    },
)


NAMES_OF_AXES = {"tp", "pp", "vpp", "cp", "ep", "sp", "tokens", "micro_batches", "redundant_experts"}


@settings(max_examples=400, deadline=None)
@given(known=ANY_FACTS)
def test_every_family_is_used_or_turned_down_and_never_both(known):
    advice = advise(Facts(**known))

    if advice.technique is T.ASK_MORE:
        assert not any(step.decides for step in advice.path)
        return
    turned_down = [each.option for each in advice.rejected]
    assert len(turned_down) == len(set(turned_down))
    assert set(advice.families).isdisjoint(turned_down)
    assert set(advice.families) | {option for option in turned_down if option in FAMILIES} == set(FAMILIES)
    for sentence in (advice.says, advice.why, *(each.reason for each in advice.rejected)):
        assert sentence.endswith(".")
        assert (
            sentence[0].isupper()
            or sentence[0].isdigit()
            or sentence.split(" is ")[0]
            in {"tp", "pp", "cp", "ep", "sp", "tokens", "micro_batches", "redundant_experts", "vpp"}
        )
    assert advice.path[-1].decides


def test_the_procedure_asks_in_the_order_in_which_it_is_written():
    advice = advise(
        Facts(phase="serving", tp=2, attention_heads=64, share_of_memory_ceiling=0.3, hosts=1, fits=True)
    )
    order = [step.asks for step in PROCEDURE]

    asked = [order.index(step.asks) for step in advice.path]
    assert asked == sorted(asked)
    assert len(asked) == 3


class TestFacts:
    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (
                {"phase": "tuning"},
                "phase is 'tuning', which is no answer here. Use one of: training, serving.",
            ),
            (
                {"overflow": ["layer", "disk"]},
                "overflow is 'disk', which is no answer here. Use one of: layer, stack, experts, activations, "
                "sequence, kv-cache, model-states.",
            ),
            ({"tp": 0}, "tp is 0, but it counts things: use a whole number, 1 or more."),
            ({"tp": 2.5}, "tp is 2.5, but it counts things: use a whole number, 1 or more."),
            ({"link_busy": float("nan")}, "link_busy is nan, but it must be a number, 0 or more."),
            ({"zero": 4}, "zero is 4, but there are stages 0 to 3. Use 0 for plain replicas."),
            ({"sp": "maybe"}, "sp is 'maybe', but it is true or false."),
            ({"redundant_experts": -1}, "redundant_experts is -1, but it counts copies: use 0 or more."),
            ({"overflows": "layer"}, "overflows is no fact that the adviser knows. Did you mean overflow?"),
            (
                {"colour": "red"},
                "colour is no fact that the adviser knows. Facts lists those that can be given.",
            ),
        ],
    )
    def test_what_is_no_fact_is_refused_in_a_sentence(self, given, sentence):
        with pytest.raises(ValueError, match=exactly(sentence)):
            Facts.of(given)

    def test_a_link_that_is_not_on_the_ladder_is_refused(self):
        with pytest.raises(ValueError, match="link is 'string', which is not on the ladder"):
            Facts(link_between="string")

    def test_a_tool_that_is_not_known_is_refused(self):
        with pytest.raises(ValueError, match="tool is 'jax', whose checks are not known here"):
            Facts(tool="jax")

    def test_several_pieces_may_overflow_and_keep_one_order(self):
        assert Facts.of({"overflow": ["stack", "layer"]}).overflows == ("layer", "stack")

    def test_what_other_facts_make_plain_need_not_be_said(self):
        assert Facts(devices_to_fit=4).one_fits is False
        assert Facts(devices_to_fit=1).one_fits is True
        assert Facts(speed_over_alone=0.9).one_fits is True
        assert Facts(overflow="stack").one_fits is False
        assert Facts().one_fits is None


@pytest.mark.parametrize(("tp", "says"), [(8, "Take TP 16"), (16, "in the same group"), (4, "up to TP 8")])
def test_a_cache_is_shared_by_tokens_only_where_heads_are_held_twice(tp, says):
    facts = Facts(
        phase="serving", overflow="kv-cache", tp=tp, kv_heads=8, hosts=2, devices_per_host=8, fits=True
    )

    assert says in advise(facts).says
