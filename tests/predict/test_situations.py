"""28 situations from public trackers: from the symptom alone the adviser reaches what the participants found.

Each case has the numbers of its thread, in the words of a fact, and what tempted people there. The diagnosis is never
among the facts.
"""

from dataclasses import dataclass

import pytest

from calculators.predict.advisor import Advice, Facts, Finding, Remedy, Technique, advise

T, F, R = Technique, Finding, Remedy


@dataclass(frozen=True)
class Situation:
    number: int
    where: str
    facts: Facts
    technique: Technique
    tempting: tuple
    finding: Finding | None = None
    families: tuple = ()
    rule: str = ""
    says: tuple = ()
    axes: dict | None = None


SITUATIONS = (
    Situation(
        1,
        "vllm 11147: a 70B model runs on 4 of 6 cards of a workstation; 6 stop with an error about heads",
        Facts(
            phase="serving",
            fits=False,
            attention_heads=64,
            kv_heads=8,
            hosts=1,
            devices_per_host=6,
            tp=6,
            tool="vllm",
        ),
        T.COMPOSITION,
        finding=F.RULE,
        families=(T.TENSOR, T.PIPELINE),
        rule="R1",
        says=("Use TP 4, or TP 2 × PP 3", "several requests in flight"),
        axes={"tp": 2, "pp": 3},
        tempting=(R.HUNT_A_BUG, R.ANY_SIZE),  # a driver; TP 5 then
    ),
    Situation(
        2,
        "vllm 596: three 24 GB cards and a 13B model with 40 heads: TP 3 is refused, TP 2 wastes a card",
        Facts(
            phase="serving",
            fits=False,
            attention_heads=40,
            kv_heads=40,
            hosts=1,
            devices_per_host=3,
            tp=3,
            tool="vllm",
            moe=False,
        ),
        T.PIPELINE,
        finding=F.RULE,
        rule="R1",
        says=("PP 3", "TP 2"),
        axes={"pp": 3},
        tempting=(T.EXPERT, T.DATA),
    ),
    Situation(
        3,
        "ms-swift 8219: a model with 2 key-value groups stops at TP 8 on one release and not on a newer one",
        Facts(phase="training", moe=True, kv_heads=2, tp=8, tool="megatron-0.15"),
        T.TENSOR,
        finding=F.RULE,
        rule="R2",
        says=("newer release", "TP 2"),
        tempting=(R.ANY_SIZE, R.CHANGE_THE_MODEL),  # 2 divides 8; cut query heads
    ),
    Situation(
        4,
        "vllm 17569, 54178: an FP8 mixture of experts loads at TP 4 and not at TP 8",
        Facts(
            phase="serving",
            moe=True,
            experts=128,
            expert_width=1536,
            quantisation_block=128,
            attention_heads=64,
            kv_heads=4,
            tp=8,
            tool="vllm",
        ),
        T.EXPERT,
        finding=F.RULE,
        rule="R3",
        says=("expert parallelism", "lower TP to 4"),
        tempting=(R.MORE_TENSOR, R.MORE_MEMORY),
    ),
    Situation(
        5,
        "vllm 1873: a 7B model that fits on one card gets no faster on four with TP",
        Facts(phase="serving", fits=True, tp=4, wanted="throughput", speed_over_alone=1.0),
        T.DATA,
        finding=F.SPLIT_NOT_FASTER,
        says=("replica on each device",),
        tempting=(R.MORE_TENSOR, R.LARGER_BATCH),
    ),
    Situation(
        6,
        "vllm 8089: on 8 H100s one TP 8 server handles fewer requests than two TP 4 servers",
        Facts(
            phase="serving",
            fits=False,
            devices_to_fit=4,
            hosts=1,
            devices_per_host=8,
            link_inside="nvlink-4",
            tp=8,
            wanted="throughput",
        ),
        T.COMPOSITION,
        families=(T.DATA, T.TENSOR),
        axes={"dp": 2, "tp": 4},
        tempting=(R.HUNT_A_BUG, R.MORE_TENSOR),
    ),
    Situation(
        7,
        "llama.cpp 4747: a small model does 72 tokens/s on one A100 and 31 on 8 H100s with NVLink",
        Facts(
            phase="serving",
            wanted="latency",
            tp=8,
            hosts=1,
            devices_per_host=8,
            link_inside="nvlink-4",
            speed_over_alone=31 / 72,
        ),
        T.DO_NOT_SPLIT,
        finding=F.SPLIT_NOT_FASTER,
        tempting=(R.HUNT_A_BUG, T.TENSOR),
    ),
    Situation(
        8,
        "distributed-llama 58: transfers of 4 ms by bandwidth take 200 ms over Ethernet",
        Facts(
            phase="serving",
            tp=4,
            hosts=4,
            devices_per_host=1,
            link_between="ethernet-1",
            link_busy=4 / 200,
        ),
        T.PIPELINE,
        finding=F.LATENCY,
        says=("Exchange less often",),
        tempting=(R.FASTER_LINK, T.TENSOR),
    ),
    Situation(
        9,
        "vllm 6610: PP across two nodes; 800 instead of 400 Gbit/s changes nothing",
        Facts(
            phase="serving",
            pp=2,
            hosts=2,
            link_between="infiniband-ndr",
            faster_link_helped=False,
        ),
        T.NONE_OF_THESE,
        finding=F.LINK_NOT_THE_LIMIT,
        families=(T.PIPELINE,),
        says=("more requests in flight",),
        tempting=(R.FASTER_LINK, T.TENSOR),
    ),
    Situation(
        10,
        "vllm-dgx-spark 1: 3 tokens/s from a bf16 70B model on two machines of 273 GB/s, joined by RDMA",
        Facts(
            phase="serving",
            tp=2,
            hosts=2,
            devices_per_host=1,
            link_between="fast",
            share_of_memory_ceiling=3 / (2 * 273e9 / 141e9),
        ),
        T.NONE_OF_THESE,
        finding=F.MEMORY_BANDWIDTH,
        families=(T.TENSOR,),
        says=("quantise", "mixture of experts"),
        tempting=(R.FASTER_LINK, R.HUNT_A_BUG),
    ),
    Situation(
        11,
        "exo 2295: four machines on Thunderbolt pipeline 8.7 tokens/s, and 25 in another mode",
        Facts(
            phase="serving",
            pp=4,
            hosts=4,
            devices_per_host=1,
            link_between="thunderbolt-5",
            # What a token takes longer, over the four hops of its way round.
            seconds_per_exchange=(1 / 8.7 - 1 / 25) / 4,
        ),
        T.NONE_OF_THESE,
        finding=F.WRONG_RUNG,
        families=(T.PIPELINE,),
        says=("Bind the run to the addresses of Thunderbolt",),
        tempting=(T.TENSOR, R.MORE_DEVICES),
    ),
    Situation(
        12,
        "exo 489: a slower machine beside a faster one lowers tokens/s; more machines never raise it",
        Facts(phase="serving", pp=2, hosts=2, requests=1, wanted="latency", speed_over_alone=0.8),
        T.DO_NOT_SPLIT,
        finding=F.SPLIT_NOT_FASTER,
        tempting=(R.MORE_DEVICES, T.PIPELINE),
    ),
    Situation(
        13,
        "llama.cpp 15463: over two machines both GPUs sit near 50 %, one alone reaches 100 %",
        Facts(phase="serving", pp=2, hosts=2, devices_per_host=1, device_busy=0.5),
        T.NONE_OF_THESE,
        finding=F.BUBBLE,
        families=(T.PIPELINE,),
        says=("requests in flight",),
        tempting=(R.FASTER_LINK,),
    ),
    Situation(
        14,
        "LLMKube 1423: two machines decode 12.42 tokens/s, one alone 12.83",
        Facts(
            phase="serving",
            pp=2,
            hosts=2,
            devices_per_host=1,
            speed_over_alone=12.42 / 12.83,
        ),
        T.DO_NOT_SPLIT,
        finding=F.SPLIT_NOT_FASTER,
        tempting=(R.FASTER_LINK, T.PIPELINE),
    ),
    Situation(
        15,
        "vllm 11285: pipeline stages in two clouds",
        Facts(phase="serving", pp=2, hosts=2, link_between="wan"),
        T.DATA,
        says=("independent replicas",),
        tempting=(T.PIPELINE,),
    ),
    Situation(
        16,
        "vllm 9176: terrible throughput while few requests run, fine with many",
        Facts(phase="serving", pp=4, hosts=4, requests=2, wanted="throughput"),
        T.NONE_OF_THESE,
        finding=F.BUBBLE,
        families=(T.PIPELINE,),
        tempting=(T.TENSOR, R.MORE_DEVICES),
    ),
    Situation(
        17,
        "torchtitan 775: training hangs with fewer micro-batches than stages",
        Facts(phase="training", pp=4, micro_batches=2, tool="torchtitan"),
        T.PIPELINE,
        finding=F.RULE,
        rule="R6",
        says=("4 micro-batches",),
        tempting=(R.HUNT_A_BUG,),
    ),
    Situation(
        18,
        "Megatron-LM 468: 80 layers with PP 16 and VPP 2 train only 64",
        Facts(phase="training", layers=80, pp=16, vpp=2),
        T.PIPELINE,
        finding=F.RULE,
        rule="R5",
        says=("vpp 1 or 5",),
        tempting=(R.HUNT_A_BUG,),
    ),
    Situation(
        18,
        "Megatron-LM 1304: 30 layers with PP 4 train only 28",
        Facts(phase="training", layers=30, pp=4),
        T.PIPELINE,
        finding=F.RULE,
        rule="R4",
        says=("pp 3 or 5",),
        tempting=(R.HUNT_A_BUG,),
    ),
    Situation(
        19,
        "trl 2256: all cards hold memory and only one computes at a time; the model fits on one",
        Facts(phase="training", fits=True, hosts=1, devices_per_host=4, device_busy=0.25),
        T.DATA,
        finding=F.ONE_AT_A_TIME,
        tempting=(R.HUNT_A_BUG,),
    ),
    Situation(
        19,
        "transformers 30122: the same with a model that does not",
        Facts(phase="training", fits=False, hosts=1, devices_per_host=4, device_busy=0.25),
        T.PIPELINE,
        finding=F.ONE_AT_A_TIME,
        says=("several micro-batches",),
        tempting=(R.HUNT_A_BUG, R.MORE_DEVICES),
    ),
    Situation(
        20,
        "DeepSpeedExamples 817: some 80 GB a card on 4, 8 and 16 GPUs, with prompts of 16K",
        Facts(phase="training", dp=16, tokens=16_384, memory_falls_with_devices=False),
        T.SHARDED_DATA,
        finding=F.REPLICATED,
        families=(T.SHARDED_DATA, T.CONTEXT),
        says=("Shard the model states", "cut the sequence"),
        tempting=(R.MORE_DEVICES, T.DATA),
    ),
    Situation(
        21,
        "DeepSpeed 6889: ZeRO-3 gets slower with every node",
        Facts(phase="training", zero=3, dp=32, slower_with_more_hosts=True),
        T.SHARDED_DATA,
        finding=F.GATHERED_OVER_SLOW_LINK,
        says=("Shard inside each host",),
        tempting=(R.FASTER_LINK, T.TENSOR),
    ),
    Situation(
        22,
        "slime 1522: 64K tokens run out of memory with TP 2, SP on, full recomputation and CP 1",
        Facts(phase="training", fits=False, tokens=65_536, tp=2, sp=True, cp=1),
        T.CONTEXT,
        tempting=(T.SEQUENCE, R.SMALLER_BATCH),
    ),
    Situation(
        23,
        "verl 1226: Ulysses stuck at 8 for 40 query and 8 key-value heads, and 64K still do not fit",
        Facts(
            phase="training",
            fits=False,
            tokens=65_536,
            cp=8,
            exchange="all-to-all",
            attention_heads=40,
            kv_heads=8,
        ),
        T.CONTEXT,
        finding=F.RULE,
        says=("by a ring", "40"),
        tempting=(R.ANY_SIZE, T.SEQUENCE),
    ),
    Situation(
        24,
        "DeepSpeed 7384: Ulysses output silently wrong for some lengths",
        Facts(phase="training", tokens=4_099, cp=4, exchange="all-to-all", tool="deepspeed"),
        T.CONTEXT,
        finding=F.RULE,
        rule="R10",
        says=("Pad each sequence to 4,100 tokens",),
        tempting=(R.HUNT_A_BUG,),
    ),
    Situation(
        25,
        "Megatron-LM 1587: a layer of experts objects to TP above 1 without SP",
        Facts(phase="training", moe=True, tp=2, ep=8, sp=False, experts=64),
        T.SEQUENCE,
        finding=F.RULE,
        rule="R8",
        tempting=(R.NO_EXPERTS, T.TENSOR),
    ),
    Situation(
        26,
        "vllm 52435: 256 experts on 3 ranks stop where the load balancer is on",
        Facts(phase="serving", moe=True, experts=256, ep=3, redundant_experts=0, tool="vllm"),
        T.EXPERT,
        finding=F.RULE,
        rule="R11",
        says=("Add 2 redundant experts",),
        axes={"redundant_experts": 2},
        tempting=(R.NO_EXPERTS, R.CHANGE_THE_MODEL),  # no experts on 3 GPUs; another top-k
    ),
    Situation(
        27,
        "DeepEP 343: nodes receive equally many tokens, and throughput halves when they pile up on some GPUs",
        Facts(phase="serving", moe=True, ep=16, hosts=2, devices_per_host=8, hottest_over_mean=2.0),
        T.NONE_OF_THESE,
        finding=F.HOT_EXPERT,
        families=(T.EXPERT,),
        says=("Balance the experts",),
        tempting=(R.FASTER_LINK,),
    ),
    Situation(
        28,
        "vllm 10517: an 8B model on a 24 GB card starts with 20K of context and not with 29K",
        Facts(
            phase="serving",
            fits=True,
            overflow="kv-cache",
            kv_heads=8,
            hosts=1,
            devices_per_host=1,
        ),
        T.NONE_OF_THESE,
        finding=F.KV_CACHE,
        says=("shorter sequences", "fewer bits", "key-value heads"),
        tempting=(T.DATA, R.LARGER_BATCH),
    ),
)


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: f"{case.number}: {case.where[:60]}")
def test_the_adviser_reaches_the_diagnosis_from_the_symptom(case):
    advice = advise(case.facts)

    assert (advice.technique, advice.finding) == (case.technique, case.finding)
    assert not case.families or advice.families == case.families
    assert not case.rule or advice.rules[0].rule == case.rule
    assert case.axes is None or advice.axes == case.axes
    for words in case.says:
        assert words in advice.says
    assert advice.sources


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: f"{case.number}: {case.where[:60]}")
def test_and_turns_down_what_tempts_there_with_a_reason(case):
    advice = advise(case.facts)

    for option in case.tempting:
        reason = advice.reason_against(option)
        assert reason is not None, f"{option} was not turned down"
        assert reason.endswith(".")


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: f"{case.number}: {case.where[:60]}")
def test_its_path_ends_in_the_question_that_decided(case):
    path = advise(case.facts).path

    assert [step.decides for step in path] == [False] * (len(path) - 1) + [True]
    assert all(step.asks.endswith("?") and step.answer for step in path)


def test_there_are_all_28():
    assert sorted({case.number for case in SITUATIONS}) == list(range(1, 29))


def test_a_newer_release_lets_the_two_key_value_groups_of_situation_3_pass():
    advice: Advice = advise(Facts(phase="training", moe=True, kv_heads=2, tp=8, tool="megatron"))

    assert advice.rules == ()


def test_the_wrong_link_of_situation_11_looks_like_wi_fi():
    [facts] = [case.facts for case in SITUATIONS if case.number == 11]

    assert "as long as on Wi-Fi" in advise(facts).why
