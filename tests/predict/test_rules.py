"""Which sizes go together: the cases that trackers are full of, and checks by brute force in plain loops."""

import dataclasses
from math import lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.models.catalogue import MODELS
from calculators.predict.rules import (
    BY_ID,
    RULES,
    TOOLS,
    Case,
    Kind,
    check,
    legal,
    masks,
    minimum_devices,
    nearest_sizes,
    padded_vocabulary,
    remarks,
    sizes_that_work,
    violations,
)
from calculators.predict.shapes import Experts, LatentAttention, Layout, Layouts, ModelShape, Phase
from tests.predict.sentences import exactly

LLAMA_70B = MODELS["llama-3.1-70b"].shape
PHI_4 = MODELS["phi-4"].shape
# Sizes as the models' config.json files give them.
QWEN3_235B = ModelShape(
    name="Qwen3-235B-A22B",
    hidden_size=4096,
    layers=94,
    attention_heads=64,
    kv_heads=4,
    head_dim=128,
    ffn_width=1536,
    vocab_size=151936,
    bytes_per_element=2,
    source="config.json",
    experts=Experts(routed=128, per_token=8, width=1536),
)
DEEPSEEK_V3 = ModelShape(
    name="DeepSeek-V3",
    hidden_size=7168,
    layers=61,
    attention_heads=128,
    kv_heads=128,
    head_dim=128,
    ffn_width=18432,
    vocab_size=129280,
    bytes_per_element=2,
    source="config_671B.json",
    experts=Experts(routed=256, per_token=8, width=2048, shared_width=2048, dense_layers=3),
    latent=LatentAttention(kv_rank=512, rope_dim=64, query_rank=1536, value_dim=128),
)


def broken(shape, layout, **known):
    """The numbers of the rules that refuse it."""
    return [violation.rule for violation in check(shape, layout, **known)]


def sentence(shape, layout, **known):
    """The one sentence that it earns."""
    [found] = check(shape, layout, **known)
    return found.sentence


class TestTensorParallel:
    def test_64_heads_cannot_be_cut_six_ways(self):
        found = check(LLAMA_70B, Layout(tp=6))

        assert [violation.rule for violation in found] == ["R1", "R2"]
        assert found[0].sentence == (
            "tp is 6, but 6 ranks cannot share 64 attention heads equally. Nearest that work: 4 or 8."
        )

    def test_phi_4_at_tp_4_breaks_only_the_key_value_rule(self):
        assert sentence(PHI_4, Layout(tp=4)) == (
            "tp is 4, but 10 key-value heads can neither be shared equally by 4 ranks nor repeated equally on "
            "them. Nearest that work: 2 or 5."
        )

    def test_more_ranks_than_heads_have_one_nearest_size_and_the_sentence_says_works(self):
        found = check(LLAMA_70B, Layout(tp=100))

        assert found[0].sentence.endswith("Nearest that works: 64.")

    def test_key_value_heads_may_be_repeated_when_ranks_outnumber_them(self):
        assert check(LLAMA_70B, Layout(tp=16)) == ()

    @pytest.mark.parametrize("tool", ["megatron-0.15", "torchtitan"])
    def test_an_older_release_and_another_tool_do_not_repeat_them(self, tool):
        two_groups = dataclasses.replace(LLAMA_70B, kv_heads=2)

        assert check(two_groups, Layout(tp=8)) == ()
        assert sentence(two_groups, Layout(tp=8), tool=tool) == (
            "tp is 8, but 8 ranks cannot share 2 key-value heads equally, and here none may be repeated. "
            "Nearest that works: 2."
        )

    @pytest.mark.parametrize("tool", list(TOOLS))
    def test_one_latent_vector_is_on_every_rank_whatever_the_tool(self, tool):
        assert "R2" not in broken(DEEPSEEK_V3, Layout(tp=8), tool=tool)

    def test_96_heads_divide_in_the_documented_ways(self):
        works = sizes_that_work(MODELS["gpt-3-175b"].shape, "tp")

        assert works == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96)

    def test_quantised_blocks_do_not_fill_a_slice_of_192(self):
        """facts.md situation 4: 1536 ÷ 8 = 192 against blocks of 128, at TP 8 and not at TP 4."""
        sliced = {"tool": "vllm", "quantisation_block": 128}

        assert check(QWEN3_235B, Layout(tp=4, etp=4), **sliced) == ()
        assert sentence(QWEN3_235B, Layout(tp=8, etp=8), **sliced) == (
            "tp is 8, but a rank's slice of an expert is then 192 wide, which blocks of 128 do not fill. "
            "Nearest that works: 4. Or instead: ep 8."
        )
        assert check(QWEN3_235B, Layout(tp=8, ep=8), **sliced) == ()

    def test_they_must_fill_the_shared_expert_and_the_dense_block_too(self):
        sliced = {"tool": "vllm", "quantisation_block": 128}

        dense, expert = check(DEEPSEEK_V3, Layout(tp=32, ep=32), **sliced)
        assert (dense.rule, dense.why, dense.nearest) == (
            "R3",
            "but a rank's slice of the feed-forward matrices is then 576 wide, which blocks of 128 do not fill",
            (16,),
        )
        assert (expert.rule, expert.why, expert.nearest) == (
            "R3",
            "but a rank's slice of an expert is then 64 wide, which blocks of 128 do not fill",
            (16,),
        )
        assert sentence(LLAMA_70B, Layout(tp=64), tool="vllm", quantisation_block=512) == (
            "tp is 64, but a rank's slice of the feed-forward matrices is then 448 wide, which blocks of 512 do not "
            "fill. Nearest that works: 8."
        )

    def test_without_quantisation_there_are_no_blocks_to_fill(self):
        assert check(QWEN3_235B, Layout(tp=8, etp=8), tool="vllm") == ()


class TestPipeline:
    def test_80_layers_do_not_make_three_equal_stages(self):
        [found] = check(LLAMA_70B, Layout(pp=3))

        assert (found.rule, found.axis, found.nearest) == ("R4", "pp", (2, 4))
        assert found.sentence == (
            "pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4."
        )

    def test_a_given_layout_of_stages_or_another_tool_allows_uneven_ones(self):
        assert check(LLAMA_70B, Layout(pp=3), uneven_stages=True) == ()
        assert check(LLAMA_70B, Layout(pp=3), tool="vllm") == ()
        assert check(DEEPSEEK_V3, Layout(tp=2, pp=16), uneven_stages=True) == ()

    @pytest.mark.parametrize("known", [{"tool": "vllm"}, {"uneven_stages": True}])
    def test_a_stage_without_a_layer_works_nowhere(self, known):
        assert sentence(LLAMA_70B, Layout(pp=81), **known) == (
            "pp is 81, but 80 layers do not make 81 stages of at least one layer. Nearest that works: 80."
        )

    def test_61_layers_are_prime(self):
        assert sizes_that_work(DEEPSEEK_V3, "pp") == (1, 61)

    def test_24_layers_in_4_stages_interleave_in_the_documented_ways(self):
        shape = dataclasses.replace(LLAMA_70B, layers=24)

        chunks = [vpp for vpp in range(1, 25) if not broken(shape, Layout(pp=4, vpp=vpp))]

        assert chunks == [1, 2, 3, 6]

    def test_80_layers_do_not_make_16_stages_of_2_chunks(self):
        assert sentence(LLAMA_70B, Layout(pp=16, vpp=2)) == (
            "vpp is 2, but 80 layers do not make 16 × 2 chunks of equal depth. Nearest that work: 1 or 5."
        )
        assert sentence(LLAMA_70B, Layout(pp=16, vpp=6), tool="torchtitan") == (
            "vpp is 6, but 80 layers do not make 16 × 6 chunks of at least one layer. Nearest that works: 5."
        )

    def test_one_stage_has_nothing_to_interleave(self):
        assert sentence(LLAMA_70B, Layout(vpp=2)) == (
            "vpp is 2, but a pipeline of one stage has nothing to interleave. Nearest that works: 1. "
            "Or instead: pp 2."
        )

    @pytest.mark.parametrize(
        ("micro_batches", "group", "fine"),
        [(8, None, True), (10, None, False), (3, None, False), (10, 6, True), (8, 6, False), (8, 3, False)],
    )
    def test_groups_of_an_interleaved_schedule_fill_the_pipeline(self, micro_batches, group, fine):
        """Megatron: the group is in [pp, m], and what is left over is nothing or fills the pipeline."""
        found = broken(LLAMA_70B, Layout(pp=4, vpp=2), micro_batches=micro_batches, micro_batch_group=group)

        assert found == ([] if fine else ["R6"])

    def test_the_rule_of_groups_reads(self):
        assert sentence(LLAMA_70B, Layout(pp=4, vpp=2), micro_batches=10) == (
            "micro_batches is 10, but an interleaved pipeline of 4 stages takes them in groups of 4, and a group "
            "that is left over must fill it too. Nearest that work: 8 or 12. Or instead: pp 2 or 5."
        )

    def test_megatron_fills_and_drains_with_few_micro_batches_and_torchtitan_refuses(self):
        assert check(LLAMA_70B, Layout(pp=4), micro_batches=2) == ()
        assert sentence(LLAMA_70B, Layout(pp=4), micro_batches=2, tool="torchtitan") == (
            "micro_batches is 2, but a pipeline of 4 stages needs at least as many to fill it. Nearest that works: 4. "
            "Or instead: pp 2."
        )

    def test_its_gpipe_takes_any_number(self):
        few = {"micro_batches": 2, "tool": "torchtitan"}

        assert broken(LLAMA_70B, Layout(pp=4), schedule="1f1b", **few) == ["R6"]
        assert check(LLAMA_70B, Layout(pp=4), schedule="gpipe", **few) == ()

    def test_torchtitan_deals_interleaved_micro_batches_out_in_equal_rounds(self):
        """torch 2.13 names 10 micro-batches on 4 stages, two rounds of five, as allowed."""
        layout = Layout(pp=4, vpp=2)

        assert check(LLAMA_70B, layout, micro_batches=10, tool="torchtitan") == ()
        assert check(LLAMA_70B, layout, micro_batches=3, tool="torchtitan") == ()
        assert sentence(LLAMA_70B, layout, micro_batches=9, tool="torchtitan") == (
            "micro_batches is 9, but an interleaved pipeline of 4 stages takes them in equal rounds of at least as "
            "many. Nearest that work: 8 or 10. Or instead: pp 3 or 5."
        )

    def test_micro_batches_follow_from_the_batch(self):
        assert broken(LLAMA_70B, Layout(pp=4, vpp=2, dp=2), batch=24, micro_batch=2) == ["R6"]
        assert check(LLAMA_70B, Layout(pp=4, vpp=2, dp=2), batch=32, micro_batch=2) == ()

    def test_a_replica_gets_whole_micro_batches(self):
        assert sentence(LLAMA_70B, Layout(dp=3), batch=64) == (
            "batch is 64, but 3 replicas with micro-batches of 1 cannot share 64 sequences equally. Nearest that work: "
            "63 or 66. Or instead: dp 2 or 4."
        )


class TestTokens:
    def test_sequence_parallelism_needs_a_tensor_parallel_group(self):
        assert sentence(LLAMA_70B, Layout(sp=True)) == (
            "sp is on, but without tensor parallelism there is no group to share the tokens among. Nearest that works: "
            "off. Or instead: tp 2."
        )
        assert check(LLAMA_70B, Layout(sp=True, tp=2)) == ()

    def test_and_a_number_of_tokens_that_its_ranks_share(self):
        assert sentence(LLAMA_70B, Layout(sp=True, tp=8), tokens=1001) == (
            "tokens is 1,001, but 8 ranks cannot share 1,001 tokens equally. Nearest that work: 1,000 or 1,008."
        )
        assert check(LLAMA_70B, Layout(tp=8), tokens=1001) == ()

    def test_experts_beside_tensor_parallelism_need_it_in_training(self):
        layout = Layout(dp=8, tp=2, ep=8)

        assert sentence(QWEN3_235B, layout) == (
            "sp is off, but each of the 2 tensor-parallel ranks would send the same tokens to the experts. "
            "Nearest that works: on. Or instead: tp 1."
        )
        assert check(QWEN3_235B, dataclasses.replace(layout, sp=True)) == ()
        assert check(QWEN3_235B, layout, phase=Phase.DECODE) == ()
        assert check(QWEN3_235B, layout, tool="torchtitan") == ()

    def test_context_parallelism_takes_two_pieces_a_rank(self):
        assert sentence(LLAMA_70B, Layout(cp=4), tokens=8196) == (
            "tokens is 8,196, but 4 ranks with two pieces each cannot share 8,196 tokens equally. Nearest that work: "
            "8,192 or 8,200. Or instead: cp 3 or 6."
        )
        assert check(LLAMA_70B, Layout(cp=4), tokens=8200) == ()
        assert check(LLAMA_70B, Layout(cp=4), tokens=8196, tool="deepspeed") == ()

    def test_and_one_for_each_rank_of_sequence_parallelism_in_them(self):
        assert sentence(LLAMA_70B, Layout(cp=4, tp=8, sp=True), tokens=8200) == (
            "tokens is 8,200, but 4 ranks with two pieces each, shared by 8 more, cannot share 8,200 tokens equally. "
            "Nearest that work: 8,192 or 8,256. Or instead: cp 1."
        )

    def test_ulysses_stops_at_the_key_value_heads_and_goes_on_where_they_are_repeated(self):
        """facts.md situation 23: 40 query heads and 8 key-value heads."""
        shape = dataclasses.replace(LLAMA_70B, attention_heads=40, kv_heads=8)
        ulysses = {"exchange": "all-to-all", "tool": "deepspeed"}
        degrees = [cp for cp in range(1, 41) if not broken(shape, Layout(cp=cp), **ulysses)]
        repeated = [
            cp for cp in range(1, 41) if not broken(shape, Layout(cp=cp), replicated_kv=True, **ulysses)
        ]

        assert degrees == [1, 2, 4, 8]
        assert repeated == [1, 2, 4, 8, 40]
        assert check(shape, Layout(cp=16), tool="deepspeed") == ()

    def test_its_sentences_read(self):
        ulysses = {"exchange": "all-to-all", "tool": "deepspeed"}

        found = check(LLAMA_70B, Layout(cp=3), tokens=4096, **ulysses)
        assert [violation.rule for violation in found] == ["R10"] * 3
        assert found[0].sentence == (
            "cp is 3, but an all-to-all cannot share 64 attention heads among 3 ranks. Nearest that work: 2 or 4."
        )
        assert found[1].sentence == (
            "cp is 3, but an all-to-all cannot share 8 key-value heads among 3 ranks. Nearest that work: 2 or 4."
        )
        assert found[2].sentence == (
            "tokens is 4,096, but 3 ranks cannot share 4,096 tokens equally. Nearest that work: 4,095 or 4,098. "
            "Or instead: cp 2 or 4."
        )
        assert check(LLAMA_70B, Layout(cp=3), replicated_kv=True, **ulysses)[1].why == (
            "but an all-to-all cannot share 8 key-value heads among 3 ranks or repeat them equally"
        )

    def test_latent_heads_are_unfolded_before_they_are_swapped(self):
        assert broken(DEEPSEEK_V3, Layout(cp=64), exchange="all-to-all") == []


class TestExperts:
    def test_a_dense_model_has_none(self):
        assert sentence(LLAMA_70B, Layout(ep=2, dp=2)) == (
            "ep is 2, but a dense model has no experts to place. Nearest that works: 1."
        )

    def test_ranks_get_equally_many(self):
        assert sentence(QWEN3_235B, Layout(ep=6, dp=12)) == (
            "ep is 6, but 6 ranks cannot share 128 experts equally. Nearest that works: 4."
        )
        assert sizes_that_work(QWEN3_235B, "ep") == (1, 2, 4, 8, 16, 32, 64, 128)

    def test_vllm_places_remainders_and_its_load_balancer_does_not(self):
        """facts.md situation 26: 256 experts on 3 ranks, and 258 with two more copies."""
        layout, vllm = Layout(dp=3, ep=3), {"tool": "vllm"}

        assert broken(DEEPSEEK_V3, layout) == ["R11"]
        assert check(DEEPSEEK_V3, layout, **vllm) == ()
        assert check(DEEPSEEK_V3, layout, redundant_experts=2, **vllm) == ()
        assert sentence(DEEPSEEK_V3, layout, redundant_experts=0, **vllm) == (
            "redundant_experts is 0, but 3 ranks cannot share 256 + 0 experts equally. Nearest that works: 2. "
            "Or instead: ep 1."
        )

    def test_more_ranks_than_experts_leave_some_without_one(self):
        small = dataclasses.replace(QWEN3_235B, experts=Experts(routed=8, per_token=2, width=1536))

        assert check(small, Layout(dp=16, ep=16), tool="vllm")[0].why == (
            "but 8 experts leave some of 16 ranks without one"
        )

    def test_vllm_calculates_the_size_of_expert_parallelism(self):
        vllm = {"tool": "vllm"}

        assert check(QWEN3_235B, Layout(tp=2, dp=4, ep=8), **vllm) == ()
        assert check(QWEN3_235B, Layout(tp=2, dp=4, etp=8), **vllm) == ()
        assert sentence(QWEN3_235B, Layout(tp=2, dp=4, ep=4), **vllm) == (
            "ep is 4, but vLLM spreads experts over all tp × dp = 8 ranks: whole ones with --enable-expert-parallel, "
            "slices of each without. Nearest that work: 1 or 8."
        )

    def test_decode_context_parallelism_reuses_ranks_with_the_same_heads(self):
        vllm = {"tool": "vllm"}

        assert check(LLAMA_70B, Layout(tp=16), decode_cp=2, **vllm) == ()
        assert sentence(LLAMA_70B, Layout(tp=16), decode_cp=4, **vllm) == (
            "decode_cp is 4, but it must divide tp = 16 and be no more than tp ÷ 8 cached heads. "
            "Nearest that works: 2."
        )
        assert check(DEEPSEEK_V3, Layout(tp=8, ep=8), decode_cp=8, **vllm) == ()
        assert check(DEEPSEEK_V3, Layout(tp=8, ep=8), decode_cp=16, **vllm)[0].why == (
            "but it must divide tp = 8 and be no more than tp ÷ 1 cached head"
        )


class TestDevices:
    def test_replicas_share_the_devices_equally(self):
        assert sentence(LLAMA_70B, Layout(tp=8, pp=2), devices=24) == (
            "devices is 24, but replicas of tp × cp × pp = 16 devices do not share them equally. Nearest that work: "
            "16 or 32."
        )
        assert check(LLAMA_70B, Layout(tp=8, pp=2, dp=2), devices=32) == ()

    def test_and_there_are_as_many_as_fit(self):
        assert sentence(LLAMA_70B, Layout(tp=8, dp=2), devices=32) == (
            "dp is 2, but 32 devices make 4 replicas of tp × cp × pp = 8. Nearest that works: 4."
        )
        assert check(LLAMA_70B, Layout(tp=8, dp=2), devices=8)[0].why == (
            "but 8 devices make 1 replica of tp × cp × pp = 8"
        )

    def test_replicas_of_experts_are_whole_too(self):
        assert sentence(QWEN3_235B, Layout(dp=6, ep=4)) == (
            "ep is 4, but the 6 devices of a stage do not make whole replicas of ep × etp = 4. Nearest that works: 2. "
            "Or instead: dp 4 or 8."
        )

    def test_oracle_14_deepseek_v3_needs_1024_devices_and_not_the_product(self):
        """formulas.md oracle 14: PP · max(TP·CP, EP·ETP), exact; the product that READMEs print is 2,048."""
        sizes = {"tp": 2, "pp": 16, "ep": 64}

        assert minimum_devices(**sizes) == 1024
        assert minimum_devices(**sizes) != 2 * 16 * 64
        fits = {"uneven_stages": True, "devices": 1024}
        assert check(DEEPSEEK_V3, Layout(**sizes, dp=32, sp=True), **fits) == ()

    def test_oracle_14_on_half_as_many_devices_says_how_many_it_takes(self):
        layout = Layout(tp=2, pp=16, ep=64, dp=16, sp=True)

        assert sentence(DEEPSEEK_V3, layout, uneven_stages=True, devices=512) == (
            "devices is 512, but these sizes fit together on 1,024 devices at least. Nearest that works: 1,024. "
            "Or instead: ep 32."
        )
        assert sentence(DEEPSEEK_V3, layout, uneven_stages=True) == (
            "dp is 16, but that makes 512 devices, and these sizes fit together on 1,024 at least. Nearest that "
            "works: 32. Or instead: ep 32."
        )

    @given(
        tp=st.integers(1, 12),
        cp=st.integers(1, 6),
        pp=st.integers(1, 6),
        ep=st.integers(1, 24),
        etp=st.integers(1, 4),
    )
    def test_the_minimum_is_the_first_world_that_both_groupings_share(self, tp, cp, pp, ep, etp):
        """Derivation: parallel_state.py refuses a world that is no multiple of pp·tp·cp or of pp·ep·etp."""
        world = next(n for n in range(1, 10**6) if n % (pp * tp * cp) == 0 and n % (pp * ep * etp) == 0)

        fewest = minimum_devices(tp=tp, cp=cp, pp=pp, ep=ep, etp=etp)

        assert fewest == world
        assert fewest >= pp * max(tp * cp, ep * etp)
        if (tp * cp) % (ep * etp) == 0 or (ep * etp) % (tp * cp) == 0:
            assert fewest == pp * max(tp * cp, ep * etp)

    def test_devices_come_in_whole_parts(self):
        with pytest.raises(
            ValueError,
            match=exactly("ep is 1.5, but devices are shared in whole parts. Use a whole number."),
        ):
            minimum_devices(ep=1.5)

    def test_a_group_that_leaves_its_host_is_advised_against_and_not_refused(self):
        [experts] = remarks(QWEN3_235B, Layout(dp=16, ep=16), devices_per_host=8)
        assert (experts.kind, experts.sentence) == (
            Kind.ADVICE,
            "ep is 16, but groups of ep × etp = 16 reach beyond a host of 8, over the slower link. "
            "Nearest that works: 8.",
        )
        [tensor] = [
            found for found in remarks(LLAMA_70B, Layout(tp=16), devices_per_host=8) if found.rule == "R17"
        ]
        assert tensor.sentence == (
            "tp is 16, but such a group reaches beyond a host of 8, where each all-reduce waits for the slower link. "
            "Nearest that works: 8."
        )
        assert check(LLAMA_70B, Layout(tp=16), devices_per_host=8) == ()
        assert remarks(LLAMA_70B, Layout(tp=2), devices_per_host=8) == ()

    def test_gpt_3s_vocabulary_is_padded_to_51200_on_8_ranks(self):
        """Narayanan 2021 prints V = 51,200 for a tokenizer of 50,257 words."""
        assert padded_vocabulary(50_257, 8) == 51_200
        [note] = remarks(MODELS["gpt-3-175b"].shape, Layout(tp=8))
        assert (note.rule, note.kind, note.sentence) == (
            "R18",
            Kind.NOTE,
            "tp is 8, but 50,257 words do not share out in blocks of 128: they are padded to 51,200, which the program "
            "does by itself.",
        )

    @given(vocab=st.integers(1, 300_000), tp=st.integers(1, 64), divisor=st.sampled_from([1, 64, 128]))
    def test_padding_adds_the_fewest_rows_that_share_out(self, vocab, tp, divisor):
        padded = vocab
        while padded % (divisor * tp):
            padded += 1

        assert padded_vocabulary(vocab, tp, divisor=divisor) == padded


class TestTheTable:
    def test_it_holds_r1_to_r19_in_order(self):
        assert [rule.id for rule in RULES] == [f"R{number}" for number in range(1, 20)]

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
    def test_every_rule_says_what_it_asks_and_who_enforces_it(self, rule):
        assert rule.says.endswith(".")
        assert rule.source
        assert rule.tools <= set(TOOLS)
        assert rule.axis == rule.axes[0]

    @pytest.mark.parametrize(
        ("layout", "known", "checked_by"),
        [
            ({"tp": 3}, {}, ""),
            ({"tp": 8}, {"tool": "megatron-0.15"}, "Megatron-LM 0.15 (core 0.15)"),
            (
                {"pp": 3},
                {},
                "Megatron-LM (d98e8a64 of August 2026, with Transformer Engine)",
            ),
            (
                {"tp": 16},
                {"tool": "vllm", "decode_cp": 16},
                "vLLM (its serving documentation of 2026)",
            ),
        ],
    )
    def test_a_rule_of_one_program_names_it_and_its_version(self, layout, known, checked_by):
        shape = dataclasses.replace(LLAMA_70B, kv_heads=2)

        found = check(shape, Layout(**layout), **known)[0]

        assert found.checked_by == checked_by
        assert found.source == BY_ID[found.rule].source

    def test_only_placement_is_advice_and_only_padding_a_note(self):
        kinds = {kind: [rule.id for rule in RULES if rule.kind is kind] for kind in (Kind.ADVICE, Kind.NOTE)}

        assert kinds == {Kind.ADVICE: ["R16", "R17"], Kind.NOTE: ["R18"]}

    def test_every_broken_rule_is_reported_at_once(self):
        assert broken(LLAMA_70B, Layout(tp=3, pp=7)) == ["R1", "R2", "R4"]

    def test_a_size_that_works_is_its_own_nearest(self):
        assert nearest_sizes(LLAMA_70B, "pp", 16) == (16,)
        assert nearest_sizes(LLAMA_70B, "pp", 3) == (2, 4)

    def test_a_number_that_nothing_can_cure_says_so_and_what_else_can(self):
        unsplit = check(QWEN3_235B, Layout(tp=2, ep=3, etp=2), tool="vllm")
        assert unsplit[1].sentence == (
            "dp is 1, but that makes 2 devices, and these sizes fit together on 6 at least. No other dp works while "
            "the rest stays as it is, but this does: ep 2."
        )
        assert sentence(LLAMA_70B, Layout(tp=8, dp=2), devices=32, batch=6) == (
            "dp is 2, but 32 devices make 4 replicas of tp × cp × pp = 8. No other dp works while the rest stays as it "
            "is."
        )

    def test_an_axis_whose_sizes_depend_on_more_than_the_model_is_refused_in_a_sentence(self):
        with pytest.raises(
            ValueError,
            match=exactly(
                "axis is 'dp', but only the sizes of tp, pp and ep follow from a model alone. Use one of those."
            ),
        ):
            sizes_that_work(LLAMA_70B, "dp")

    def test_sentences_about_many_layouts_at_once_are_refused(self):
        with pytest.raises(
            ValueError,
            match=exactly("Sentences are about one layout, but the axes have shapes: tp (2,). Use `legal`."),
        ):
            violations(Case(shape=LLAMA_70B, layouts=Layouts(tp=[1, 2])))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"tokens": 0}, "tokens is 0, but it must be a number, 1 or more and at most 1e+18."),
            (
                {"axes": {"tp": float("nan")}},
                "tp is nan, but it must be a number, 1 or more and at most 1e+18.",
            ),
            (
                {"axes": {"tp": [1, 2], "pp": [1, 2, 3]}},
                "The arrays do not broadcast: tp (2,), pp (3,). Give them one shape, or shapes that differ only where "
                "one of them is 1.",
            ),
            (
                {"tool": "jax"},
                "tool is 'jax', whose checks are not known here. Use one of: megatron, megatron-0.15, torchtitan, "
                "deepspeed, vllm.",
            ),
            (
                {"exchange": "tree"},
                "exchange is 'tree', but keys and values meet by ring, all-gather or all-to-all. Use one of those.",
            ),
        ],
    )
    def test_what_no_rule_can_be_asked_about_is_refused_in_a_sentence(self, given, message):
        axes, rest = given.get("axes", {}), {name: value for name, value in given.items() if name != "axes"}

        with pytest.raises(ValueError, match=exactly(message)):
            Case(shape=LLAMA_70B, layouts=Layouts(**axes), **rest)


# The rules again, in whole numbers and plain Python, one layout at a time.


def plainly_broken(shape, layout, *, tokens=None, batch=None, micro_batch=1, devices=None):
    """The conditions for which current Megatron training refuses a layout, each with the number of its rule."""
    tp, pp, cp, ep, etp, dp, vpp = (
        getattr(layout, axis) for axis in ("tp", "pp", "cp", "ep", "etp", "dp", "vpp")
    )
    stage = dp * tp * cp
    m = batch / (dp * micro_batch) if batch else None
    conditions = {
        "R1": shape.attention_heads % tp,
        "R2": not shape.latent and shape.kv_heads % tp and tp % shape.kv_heads,
        "R4": shape.layers % pp,
        "R5 one stage": vpp > 1 and pp == 1,
        "R5 depth": vpp > 1 and shape.layers % (pp * vpp),
        "R6": m and vpp > 1 and (m < pp or m % pp),
        "R7 no group": layout.sp and tp == 1,
        "R7 tokens": layout.sp and tokens and tokens % tp,
        "R8": tp > 1 and ep > 1 and not layout.sp,
        "R9": tokens and cp > 1 and tokens % (2 * cp * (tp if layout.sp else 1)),
        "R11 dense": (ep > 1 or etp > 1) and not shape.experts,
        "R11 shares": shape.experts and shape.experts.routed % ep,
        "R13 devices": devices and devices % (tp * cp * pp),
        "R13 replicas": devices and devices % (tp * cp * pp) == 0 and devices != stage * pp,
        "R13 experts": ep * etp <= stage and stage % (ep * etp),
        "R14": (devices or stage * pp) < pp * max(tp * cp, ep * etp),
        "R19": batch and batch % (dp * micro_batch),
    }
    return {name for name, is_broken in conditions.items() if is_broken}


def rules(conditions):
    """Their numbers."""
    return {name.split()[0] for name in conditions}


SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])
LAYOUTS = st.builds(
    Layout, dp=SIZES, tp=SIZES, pp=SIZES, cp=SIZES, ep=SIZES, etp=SIZES, vpp=SIZES, sp=st.booleans()
)
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.integers(1, 300),
        "batch": st.integers(1, 64),
        "micro_batch": st.integers(1, 3),
        "devices": st.integers(1, 128),
    },
)
SHAPES = st.sampled_from(
    [
        dataclasses.replace(LLAMA_70B, layers=24, attention_heads=12, kv_heads=6),
        dataclasses.replace(PHI_4, layers=12),
        dataclasses.replace(
            QWEN3_235B,
            layers=8,
            attention_heads=16,
            experts=Experts(routed=12, per_token=2, width=96),
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(shape=SHAPES, layout=LAYOUTS, known=KNOWN)
def test_the_rules_agree_with_whole_numbers_in_plain_python(shape, layout, known):
    assert set(broken(shape, layout, **known)) == rules(plainly_broken(shape, layout, **known))


def after(shape, layout, known, axis, size):
    """What is plainly broken once one number has changed, and the replicas with it where the devices are given."""
    known = dict(known)
    if axis in ("tokens", "batch", "devices", "micro_batch"):
        known[axis] = size
    elif axis == "micro_batches":
        known["batch"] = size * layout.dp * known.get("micro_batch", 1)
    else:
        layout = dataclasses.replace(layout, **{axis: bool(size) if axis == "sp" else size})
    if known.get("devices") and axis in ("tp", "pp", "cp", "devices"):
        replica = layout.tp * layout.cp * layout.pp
        layout = dataclasses.replace(layout, dp=max(1, known["devices"] // replica))
    return plainly_broken(shape, layout, **known)


FIRST = {  # the conditions that name an axis first: a size of it is named only if it keeps them all
    "tp": {"R1", "R2"},
    "pp": {"R4"},
    "tokens": {"R7 tokens", "R9"},
    "batch": {"R19"},
}


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, layout=LAYOUTS, known=KNOWN)
def test_a_named_size_keeps_the_rules_and_breaks_nothing_and_nothing_nearer_does(shape, layout, known):
    """By trying every size in turn with the plain rules."""
    before = plainly_broken(shape, layout, **known)

    for violation in check(shape, layout, **known):
        if violation.axis not in FIRST:
            continue
        size = known[violation.axis] if violation.axis in known else getattr(layout, violation.axis)
        fine = [
            n
            for n in range(1, size + 400)
            if after(shape, layout, known, violation.axis, n) <= before - FIRST[violation.axis]
        ]
        below, above = [n for n in fine if n < size][-1:], [n for n in fine if n > size][:1]
        assert list(violation.nearest) == below + above


@settings(max_examples=300, deadline=None)
@given(shape=SHAPES, layout=LAYOUTS, known=KNOWN)
def test_whatever_a_sentence_names_keeps_a_condition_more_of_its_rule_and_breaks_none(shape, layout, known):
    before = plainly_broken(shape, layout, **known)

    for violation in check(shape, layout, **known):
        for axis, sizes in ((violation.axis, violation.nearest), *violation.or_else):
            for size in sizes:
                then = after(shape, layout, known, axis, size)
                assert then < before
                assert [name.split()[0] for name in before - then].count(violation.rule) >= 1


@settings(max_examples=50, deadline=None)
@given(
    shape=SHAPES,
    tp=st.lists(SIZES, min_size=1, max_size=4),
    pp=st.lists(SIZES, min_size=1, max_size=4),
    ep=st.lists(SIZES, min_size=1, max_size=3),
    sp=st.booleans(),
    known=KNOWN,
)
def test_many_layouts_at_once_are_judged_like_one_at_a_time(shape, tp, pp, ep, sp, known):
    known = {name: value for name, value in known.items() if name != "micro_batch"}
    layouts = Layouts(
        tp=np.reshape(tp, (-1, 1, 1)),
        pp=np.reshape(pp, (1, -1, 1)),
        ep=np.reshape(ep, (1, 1, -1)),
        dp=4,
        sp=sp,
    )

    mask = legal(Case(shape=shape, layouts=layouts, **known))

    assert mask.shape == (len(tp), len(pp), len(ep))
    for (i, j, k), fine in np.ndenumerate(mask):
        layout = Layout(tp=tp[i], pp=pp[j], ep=ep[k], dp=4, sp=sp)
        assert fine == (not plainly_broken(shape, layout, **known))


def test_no_array_is_larger_than_its_rule_needs():
    layouts = Layouts(tp=np.ones((7, 1, 1)), pp=np.ones((1, 5, 1)), dp=np.ones((1, 1, 3)))
    found = masks(Case(shape=QWEN3_235B, layouts=layouts, tokens=4096, batch=12))

    assert {name: found[name].shape for name in ("R1", "R4", "R7", "R13", "R19")} == {
        "R1": (7, 1, 1),
        "R4": (1, 5, 1),
        "R7": (7, 1, 1),
        "R13": (7, 1, 3),
        "R19": (1, 1, 3),
    }


def test_a_rule_holds_or_does_not_for_a_case_and_another_tool_may_be_asked():
    case = Case(shape=LLAMA_70B, layouts=Layouts(pp=[3, 4]))

    assert BY_ID["R4"].holds(case).tolist() == [False, True]
    assert legal(case).tolist() == [False, True]
    assert legal(case, tool="vllm").tolist() == [True, True]


def test_o_30_llama_3s_layouts_use_every_device_and_break_nothing():
    """calculators.md O-30, Llama 3 (arXiv:2407.21783) table 4: the product is the number of GPUs, and every layout
    takes 16,777,216 tokens a step. Its 126 layers are dealt out unevenly, and a printed DP of 4 fails the product."""
    shape = MODELS["llama-3.1-405b"].shape
    rows = [
        (8_192, {"tp": 8, "cp": 1, "pp": 16, "dp": 64}, 8_192, 32),
        (16_384, {"tp": 8, "cp": 1, "pp": 16, "dp": 128}, 8_192, 16),
        (16_384, {"tp": 8, "cp": 16, "pp": 16, "dp": 8}, 131_072, 16),
    ]
    for devices, axes, tokens, batch_per_replica in rows:
        known = {
            "tokens": tokens,
            "devices": devices,
            "batch": axes["dp"] * batch_per_replica,
            "uneven_stages": True,
        }
        assert check(shape, Layout(**axes), **known) == ()
        assert axes["dp"] * batch_per_replica * tokens == 16_777_216

    wrong = check(
        shape,
        Layout(tp=8, cp=16, pp=16, dp=4),
        tokens=131_072,
        devices=16_384,
        batch=64,
        uneven_stages=True,
    )
    assert [(found.rule, found.nearest) for found in wrong] == [("R13", (8,))]


@given(a=st.integers(1, 40), b=st.integers(1, 40))
def test_a_stage_of_lcm_devices_is_whole_both_ways(a, b):
    assert minimum_devices(tp=a, ep=b) == lcm(a, b)
