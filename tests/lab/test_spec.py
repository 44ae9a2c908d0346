"""A spec is read whole or refused whole, with a sentence for every field that is wrong."""

from pathlib import Path

import pytest

from calculators.lab.spec import Job, Spec, SpecError, experiment, experiment_names


def problems(**given: object) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        Spec.parse(given)
    return {problem.field: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_survives_being_written_down_and_read_again(name: str) -> None:
    spec = experiment(name)

    assert Spec.from_toml(spec.to_toml()) == spec
    assert Spec.parse(spec.to_dict()) == spec


def test_the_experiments_say_how_many_bytes_a_call_moves() -> None:
    calls = {name: experiment(name).bytes_per_call for name in experiment_names()}

    assert calls == {
        "gradients-exchange": 4_194_304,
        "ring-exchange": 524_288,
        "experts-exchange": 262_144,
        "tensor-decode": 8_192,
        "pipeline-decode": 8_192,
        "tensor-training": 262_144,
        "pipeline-training": 262_144,
        "data-training": 262_144,
        "sharded-training": 131_072,
        "sequence-training": 262_144,
        "context-training": 524_288,
        "expert-training": 262_144,
        "mesh-decode": 8_192,
    }


def test_a_forms_text_means_what_tomls_numbers_mean() -> None:
    from_form = Spec.parse({"job": "tensor", "ranks": " 4 ", "time_limit_seconds": "30"})

    assert from_form == Spec.parse({"job": "tensor", "ranks": 4, "time_limit_seconds": 30.0})


def test_parameters_are_those_of_the_model_that_the_lab_builds() -> None:
    import torch

    from calculators.lab.jobs.transformer import whole_model

    spec = Spec.parse({"job": "pipeline", "ranks": 3, "layers": 3, "vocab_size": 100})

    built = whole_model(spec, device=torch.device("meta"))

    assert spec.parameters == sum(weight.numel() for weight in built.parameters())


def test_every_wrong_field_is_named_at_once() -> None:
    found = problems(job="tensor", ranks="two", layers=0, phase="evening", dtype=8, note="a\nb")

    assert found == {
        "ranks": "ranks is “two”, but it must be a whole number from 1 to 16 ranks.",
        "layers": "layers is 0, but the least that works is 1 layers.",
        "phase": "phase is “evening”, but it must be one of “decode”, “prefill”, “training”.",
        "dtype": "dtype is “8”, but it must be one of “float32”, “bfloat16”.",
        "note": "note must be one line of text, 500 characters at most.",
    }


def test_an_unknown_key_does_not_hide_what_does_not_divide() -> None:
    assert set(problems(job="pipeline", ranks=3, rank=3)) == {"rank", "layers"}


def test_a_missing_job_says_which_there_are() -> None:
    assert problems()["job"] == (
        "job is missing. Say what to run, one of “data”, “sharded”, “tensor”, “pipeline”, “context”, “expert”, "
        "“mesh”, “exchange”, “calibration”."
    )


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("ranks", -1, "ranks is -1, but the least that works is 1 ranks."),
        ("ranks", 64, "ranks is 64, but this lab stops at 16 ranks."),
        ("ranks", True, "ranks is “True”, but it must be a whole number from 1 to 16 ranks."),
        ("ranks", 2.5, "ranks is “2.5”, but it must be a whole number from 1 to 16 ranks."),
        ("ranks", "٤", "ranks is “٤”, but it must be a whole number from 1 to 16 ranks."),
        ("hidden_size", 10**30, f"hidden_size is {10**30:,}, but this lab stops at 16,384 elements."),
        ("steps", 3, "steps is 3, but the least that works is 10 measured steps."),
        ("seed", -5, "seed is -5, but the least that works is 0."),
        ("time_limit_seconds", "nan", "time_limit_seconds is “nan”, but it must be from 1 to 3,600 seconds."),
        ("time_limit_seconds", "inf", "time_limit_seconds is “inf”, but it must be from 1 to 3,600 seconds."),
    ],
)
def test_an_absurd_value_gets_a_sentence(field: str, value: object, sentence: str) -> None:
    assert problems(job="tensor", **{field: value}) == {field: sentence}


def test_an_exchange_needs_no_model_and_is_written_down_without_one() -> None:
    spec = Spec.parse({"job": "exchange", "pattern": "ring", "ranks": 4, "call_bytes": 1_024, "repeats": 2})

    written = spec.to_toml()

    assert [line.split(" = ")[0] for line in written.splitlines()] == [
        *("job", "ranks", "pattern", "call_bytes", "repeats"),
        *("dtype", "device", "steps", "warmup_steps", "seed", "time_limit_seconds", "note"),
    ]
    assert Spec.from_toml(written) == spec
    assert (spec.bytes_per_call, spec.family, spec.unit) == (1_024, "cp", "step")


def test_experts_alone_read_a_width_and_a_skew() -> None:
    given = {"job": "exchange", "hidden_size": 64, "skew": "1.5"}

    experts, ring = (Spec.parse({**given, "pattern": pattern}) for pattern in ("experts", "ring"))

    assert (experts.hidden_size, experts.skew, experts.row_bytes) == (64, 1.5, 256)
    assert "[model]\nhidden_size = 64\n" in experts.to_toml()
    assert ring == Spec.parse({"job": "exchange", "pattern": "ring"})


def test_a_form_may_send_what_another_job_reads() -> None:
    everything = Spec(job=Job.TENSOR).to_dict() | {"layers": "7", "attention_heads": "3"}

    as_exchange = Spec.parse(everything | {"job": "exchange", "repeats": "4"})

    assert as_exchange == Spec(job=Job.EXCHANGE, repeats=4)
    assert Spec.parse({"job": "tensor", "pattern": "ring", "call_bytes": 3}) == Spec(job=Job.TENSOR)


def test_a_spec_written_before_there_were_exchanges_still_reads() -> None:
    old = Spec(job=Job.PIPELINE).to_dict()
    for name in ("pattern", "call_bytes", "repeats", "skew"):
        del old[name]

    assert Spec.parse(old) == Spec(job=Job.PIPELINE)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"pattern": "gradients", "call_bytes": 1_001},
            "call_bytes is 1001, but a tensor of float32 holds whole elements of 4 bytes. Take 1000 or 1004, or "
            "another dtype.",
        ),
        (
            {"pattern": "ring", "call_bytes": 2},
            "call_bytes is 2, but a tensor of float32 holds whole elements of 4 bytes. Take 4, or another dtype.",
        ),
        (
            {"pattern": "zero-3", "call_bytes": 1_000, "ranks": 3},
            "call_bytes is 1000, but each of 3 ranks takes an equal slice of whole float32 elements. Take 996 or "
            "1008, or another number of ranks.",
        ),
        (
            {"pattern": "experts", "call_bytes": 1_000, "hidden_size": 64, "dtype": "bfloat16"},
            "call_bytes is 1000, but experts get whole rows of 64 bfloat16 elements, 128 bytes each. Take 896 or "
            "1024, or another hidden_size.",
        ),
        (
            {"call_bytes": 2**30, "ranks": 4},
            "The tensors of one call would need about 32.0 GiB on all ranks together, and the lab stops at 8 GiB. "
            "Take smaller calls and more repeats: bytes follow their product.",
        ),
        (
            {"call_bytes": 2**31},
            "call_bytes is 2,147,483,648, but this lab stops at 1,073,741,824 bytes.",
        ),
    ],
)
def test_calls_that_cannot_be_shared_out_name_the_nearest_that_can(
    given: dict[str, object], sentence: str
) -> None:
    assert problems(job="exchange", **given) == {"call_bytes": sentence}


@pytest.mark.parametrize("skew", ["nan", -1, 9, True, "much"])
def test_a_skew_is_from_even_to_nearly_all(skew: object) -> None:
    assert problems(job="exchange", pattern="experts", skew=skew) == {
        "skew": f"skew is “{skew}”, but it must be from 0 (all alike) to 8 (nearly all to one)."
    }


def test_a_pattern_that_is_not_there_names_those_that_are() -> None:
    assert problems(job="exchange", pattern="all-reduce")["pattern"] == (
        "pattern is “all-reduce”, but it must be one of “gradients”, “zero-1”, “zero-2”, “zero-3”, “ring”, "
        "“key-value-gather”, “ulysses”, “experts”."
    )


def test_unknown_keys_are_named_with_those_that_are_known() -> None:
    found = problems(job="tensor", rank=4, model={"width": 3})

    assert found["rank"].startswith(
        "The key “rank” is unknown. A spec may hold attention, batch, call_bytes, capacity, chunks,"
    )
    assert found["width"] == (
        "The key “width” in [model] is unknown. The sizes of a model are layers, hidden_size, attention_heads, "
        "ffn_width, vocab_size."
    )


def test_heads_and_columns_that_do_not_divide_name_the_nearest_that_do() -> None:
    found = problems(job="tensor", ranks=3)

    assert found == {
        "attention_heads": (
            "8 attention heads cannot be cut into 3 equal slices. Tensor parallelism gives every rank whole heads "
            "(rule R1). Take 6 or 9, or another number of ranks."
        ),
        "ffn_width": (
            "A feed-forward width of 512 cannot be cut into 3 equal slices. Tensor parallelism gives every rank "
            "the same number of columns. Take 510 or 513, or another number of ranks."
        ),
    }


def test_layers_that_do_not_divide_name_the_nearest_that_do() -> None:
    assert problems(job="pipeline", ranks=4, layers=6)["layers"] == (
        "6 layers cannot be dealt to 4 stages evenly. Each rank is one stage of the same number of layers here "
        "(rule R4). Take 4 or 8, or another number of ranks."
    )
    assert problems(job="pipeline", ranks=4, layers=2)["layers"].endswith(
        "Take 4, or another number of ranks."
    )


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    assert problems(job="pipeline", hidden_size=250)["hidden_size"] == (
        "hidden_size is 250, which 8 attention heads do not divide evenly. Every head needs the same whole number "
        "of elements. Take 248 or 256, or another number of heads."
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"job": "tensor", "microbatches": 2},
            "microbatches is 2, but a tensor-parallel step takes the batch whole. Leave it at 1, or run the pipeline "
            "job.",
        ),
        (
            {"job": "pipeline", "phase": "training", "ranks": 4, "microbatches": 2},
            "microbatches is 2, but the 1F1B schedule needs at least one for each of the 4 stages. Take 4 or more, "
            "or the GPipe schedule.",
        ),
    ],
)
def test_microbatches_that_mean_nothing_are_refused(given: dict[str, object], sentence: str) -> None:
    assert problems(**given) == {"microbatches": sentence}


def test_a_batch_that_does_not_cut_into_microbatches_is_refused() -> None:
    assert problems(job="pipeline", phase="training", batch=7, microbatches=2)["batch"] == (
        "A batch of 7 sequences cannot be cut into 2 equal micro-batches. Every micro-batch holds the same number "
        "of sequences. Take 6 or 8, or another number of micro-batches."
    )


def test_a_model_too_big_for_the_lab_says_what_would_move_the_same_bytes() -> None:
    message = problems(job="tensor", layers=64, hidden_size=8192, ffn_width=28_672)["hidden_size"]

    assert message.startswith(
        "This model has 47,254,085,632 parameters; its 2 ranks would need about 528.1 GiB "
    )
    assert message.endswith(
        "and the lab stops at 8 GiB. Traffic follows batch × hidden_size × layers: a narrower model with a larger "
        "batch moves the same bytes."
    )


def test_a_step_that_would_fill_the_memory_is_refused_before_anything_starts() -> None:
    training = problems(job="tensor", phase="training", batch=512, tokens=2048)
    decode = problems(job="tensor", ranks=4, layers=64, batch=4096, hidden_size=256)

    assert training["batch"] == (
        "The activations of one step would need about 498.0 GiB on all ranks together, and the lab stops at 8 GiB. "
        "Take fewer sequences, tokens or layers."
    )
    assert decode["batch"] == (
        "The keys and values would need about 37.5 GiB on all ranks together, and the lab stops at 8 GiB. "
        "Take fewer sequences, steps or layers."
    )


def test_decoding_keeps_no_more_tokens_than_a_run_has_and_never_more_than_the_longest_context() -> None:
    assert Spec.parse({"job": "tensor", "steps": 10}).context == 13
    assert Spec.parse({"job": "tensor", "steps": 5_000}).context == 256


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    latin, broken = tmp_path / "latin.toml", tmp_path / "broken.toml"
    latin.write_bytes('note = "é"'.encode("latin-1"))
    broken.write_text('job = "tensor"\njob = "pipeline"\n')

    for path, sentence in [
        (tmp_path / "none.toml", f"{tmp_path / 'none.toml'} cannot be read: No such file or directory."),
        (latin, f"{latin} is not UTF-8: byte 8 is 0xe9. Save it as UTF-8."),
    ]:
        with pytest.raises(SpecError) as caught:
            Spec.load(path)
        assert str(caught.value) == sentence
    with pytest.raises(SpecError, match=r"broken\.toml is not valid TOML: .*line 2"):
        Spec.load(broken)


def test_an_unknown_experiment_names_those_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        experiment("../tensor-decode")

    assert str(caught.value) == (
        "There is no experiment “../tensor-decode”. Those that ship are context-training, data-training, "
        "expert-training, experts-exchange, gradients-exchange, mesh-decode, pipeline-decode, pipeline-training, "
        "ring-exchange, sequence-training, sharded-training, tensor-decode, tensor-training."
    )
