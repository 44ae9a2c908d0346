"""NCCL's own log: which algorithm, protocol and channels a call took, in the words of every version that says so.

The lines are written here in the formats of NCCL's source at each tag; they come from no run.
"""

import pytest

from calculators.lab.nccl_log import Named, environment, name_calls, read_log, why_unnamed, wire_factor

RANK_0, RANK_1 = "box:100:111 [0] NCCL INFO ", "box:101:112 [1] NCCL INFO "


def call(name, count, *, op=1, datatype=7, ranks=4):
    return (
        f"{name}: opCount {op:x} sendbuff 0x7f00 recvbuff 0x7f10 count {count} datatype {datatype} op 0 root 0 "
        f"comm 0x55e2 [nranks={ranks}] stream 0x55f0"
    )


def test_nccl_2_20_names_no_call_and_numbers_the_algorithm_so_the_bytes_join_them():
    log = read_log(
        [
            "box:100:100 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
            RANK_0 + call("AllReduce", 262_144, op=0x1A),
            RANK_1 + call("AllReduce", 262_144, op=0x1A),
            RANK_0 + "1048576 Bytes -> Algo 1 proto 2 time 34.693867",
            RANK_0 + call("AllGather", 1_024, op=0x1B),
            RANK_0 + "16384 Bytes -> Algo 0 proto 0 time 9.5",
        ]
    )

    assert log.version == (2, 21, 5)
    assert name_calls(log) == (
        Named(
            call="AllReduce",
            handed_bytes=2**20,
            algorithm="RING",
            protocol="SIMPLE",
            channels=None,
            times=1,
        ),
        Named(call="AllGather", handed_bytes=4_096, algorithm="TREE", protocol="LL", channels=None, times=1),
    )
    assert log.unread == ()
    assert why_unnamed(log) == ""


def test_nccl_2_23_names_the_call_and_counts_a_reduce_scatter_over_all_ranks():
    log = read_log(
        [
            RANK_0 + call("AllReduce", 4_096),
            RANK_0 + call("ReduceScatter", 1_024, op=2),
            RANK_0 + "ReduceScatter: 16384 Bytes -> Algo 6 proto 2 time 20.1",
        ]
    )

    (named,) = name_calls(log)

    assert (named.call, named.handed_bytes, str(named)) == ("ReduceScatter", 16_384, "PAT, SIMPLE")


def test_nccl_2_24_and_on_write_names_and_channels_and_equal_calls_are_counted_together():
    lines = []
    for op in range(3):
        lines += [
            "[2026-01-02 03:04:05] " + RANK_0 + call("AllReduce", 4_096, op=op, datatype=9),
            RANK_0 + "AllReduce: 8192 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        ]
    lines += [
        RANK_0 + call("ReduceScatter", 1_024, op=4),
        RANK_0 + "ReduceScatter: 4096 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}",
    ]

    reduced, scattered = name_calls(read_log(lines))

    assert (reduced.call, reduced.handed_bytes, reduced.times) == ("AllReduce", 8_192, 3)
    assert str(reduced) == "NVLS, SIMPLE, 16 channels"
    assert (scattered.handed_bytes, str(scattered)) == (16_384, "RING, LL128, 2 channels")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLLMC_R nchannels 8 nthreads 512",
            "symmetric kernel AllReduce_AGxLLMC_R, LL, 8 channels",
        ),
        (
            "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 8 nthreads 512 nWorks 1",
            "symmetric kernel AllReduce_RSxLD_AGxST, 8 channels",
        ),
        (
            "AllReduce [Copy Engine]: 4096 Bytes -> cudaMemcpy; CE synchronization with NVLS",
            "copy engine (cudaMemcpy)",
        ),
    ],
)
def test_symmetric_kernels_and_copy_engines_are_named_as_nccl_names_them(line, named):
    (one,) = name_calls(read_log([RANK_0 + call("AllReduce", 1_024), RANK_0 + line]))

    assert (one.handed_bytes, str(one)) == (4_096, named)


def test_a_choice_that_fits_no_call_of_its_process_is_kept_without_handed_bytes():
    log = read_log(
        [
            RANK_1 + call("AllReduce", 1_024),
            RANK_0 + call("AllReduce", 1_024),  # two of these in a group: NCCL chooses for both at once
            RANK_0 + call("AllReduce", 1_024),
            RANK_0 + "AllReduce: 8192 Bytes -> Algo 1 proto 1 time 1.0",
            RANK_0 + call("AllReduce", 1_024, datatype=99),
        ]
    )

    assert name_calls(log) == (
        Named(
            call="AllReduce", handed_bytes=None, algorithm="RING", protocol="LL128", channels=None, times=1
        ),
    )


def test_a_number_or_a_wording_that_is_not_known_is_said_and_not_guessed():
    log = read_log([RANK_0 + "8192 Bytes -> Algo 9 proto 2 time 1.0"])
    other = read_log([RANK_0 + "AllReduce: 8192 Bytes -> by pigeon"])

    assert [str(named) for named in name_calls(log)] == ["number 9, SIMPLE"]
    assert why_unnamed(other) == (
        "The log says how calls were made in words that this reader does not know: "
        f"“{RANK_0}AllReduce: 8192 Bytes -> by pigeon”. It knows those of NCCL 2.20 to 2.30."
    )


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            ["NCCL version 2.19.3+cuda12.3", RANK_0 + call("AllReduce", 1)],
            "NCCL 2.19.3 does not say which algorithm a call took; 2.20 and newer do, with NCCL_DEBUG=INFO and "
            "NCCL_DEBUG_SUBSYS=TUNING.",
        ),
        (
            ["NCCL version 2.27.3+cuda12.9", RANK_1 + call("Send", 1), RANK_1 + call("Recv", 1)],
            "The log has 2 calls and no choice of an algorithm. NCCL writes choices on rank 0 of a communicator only, "
            "with TUNING in NCCL_DEBUG_SUBSYS, and makes none for sends and receives.",
        ),
        (
            ["epoch 1, loss 2.5"],
            "The log has no line of NCCL's about calls. Set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL,TUNING before "
            "the first communicator is made.",
        ),
    ],
)
def test_where_nothing_can_be_named_the_reason_is_said(lines, why):
    log = read_log(lines)

    assert name_calls(log) == ()
    assert why_unnamed(log) == why


def test_ll_writes_a_flag_beside_each_word_and_ll128_one_word_in_sixteen():
    assert wire_factor("Simple") == 1
    assert wire_factor("LL") == 8 / 4
    assert wire_factor("LL128") == 16 / 15
    with pytest.raises(ValueError, match="known overhead") as refused:
        wire_factor("number 7")
    assert str(refused.value) == (
        "“number 7” is no protocol of NCCL's with a known overhead; those are Simple, LL and LL128."
    )


def test_a_rank_asks_nccl_for_calls_and_choices_in_a_file_a_process(tmp_path):
    asked = environment(tmp_path)

    assert asked["NCCL_DEBUG"] == "INFO"
    assert {"COLL", "TUNING"} <= set(asked["NCCL_DEBUG_SUBSYS"].split(","))
    assert asked["NCCL_DEBUG_FILE"] == f"{tmp_path}/nccl-%h-%p.log"
