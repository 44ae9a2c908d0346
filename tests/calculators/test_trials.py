"""A calculation made small enough to run keeps its bytes, and says what else had to give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.lab.spec import Job, Spec
from calculators.predict.shapes import Phase
from calculators.trials import MOST_LAYERS, MOST_RANKS, Calculation, trial


def calculation(**given):
    lesson = {
        "job": Job.TENSOR,
        "phase": Phase.DECODE,
        "hidden_size": 4096,
        "bytes_per_element": 2,
        "layers": 64,
        "batch": 1,
        "tokens": 1,
        "devices": 2,
    }
    return Calculation(**(lesson | given))


@pytest.mark.parametrize("job", [Job.TENSOR, Job.PIPELINE])
def test_the_lessons_example_keeps_layers_ranks_and_bytes(job):
    found = trial(calculation(job=job))

    assert (found.spec.layers, found.spec.ranks, found.spec.activation_bytes) == (64, 2, 8192)
    assert found.kept == (
        "The run has the same 64 layers, the same 2 ranks and the same bytes in each call, 8 KiB (8,192 B)."
    )
    assert found.differences == (
        "The model is narrower: 256 wide × 8 sequences × 4 B instead of 4,096 wide × 1 sequence × 2 B, "
        "because traffic depends only on the product.",
    )


def test_more_devices_than_the_lab_starts_unasked_are_said():
    found = trial(calculation(devices=8))

    assert found.spec.ranks == MOST_RANKS
    assert "It has 4 ranks instead of 8" in " ".join(found.differences)


def test_a_deeper_model_is_cut_and_that_is_said():
    found = trial(calculation(layers=126))

    assert found.spec.layers == MOST_LAYERS[Phase.DECODE]
    assert "It has 64 layers instead of 126; each layer repeats the same calls." in found.differences


def test_stages_share_the_layers_equally():
    found = trial(calculation(job=Job.PIPELINE, layers=61, devices=4))

    assert found.spec.layers == 60
    assert "(4 equal stages need a multiple of 4)" in " ".join(found.differences)


def test_a_prompt_is_measured_as_sequences_that_decode():
    found = trial(calculation(phase=Phase.PREFILL, tokens=32, hidden_size=1024))

    assert found.spec.activation_bytes == 32 * 1024 * 2
    assert "It decodes one token of 64 sequences in place of reading the prompt at once" in " ".join(
        found.differences
    )


def test_a_call_too_large_for_a_short_run_is_made_smaller_and_that_is_said():
    found = trial(calculation(phase=Phase.PREFILL, tokens=128_000, batch=16))

    assert found.spec.activation_bytes < 128_000 * 16 * 8192
    assert "so that the run ends within seconds. Bytes follow in proportion." in " ".join(found.differences)


def test_training_a_pipeline_has_a_micro_batch_for_each_stage():
    found = trial(calculation(job=Job.PIPELINE, phase=Phase.TRAINING, tokens=16, hidden_size=256, devices=4))

    assert found.spec.microbatches == 4
    assert "A step has 4 micro-batches instead of 1" in " ".join(found.differences)


def test_training_by_tensors_takes_the_batch_whole():
    found = trial(calculation(phase=Phase.TRAINING, tokens=16, hidden_size=256, micro_batches=3))

    assert found.spec.microbatches == 1
    assert "a tensor-parallel step takes its batch whole" in " ".join(found.differences)


@pytest.mark.parametrize("given", [{"devices": 1}, {"job": Job.PIPELINE, "layers": 1}])
def test_where_nothing_travels_nothing_can_be_measured(given):
    found = trial(calculation(**given))

    assert found is None


sizes = {
    "job": st.sampled_from([Job.TENSOR, Job.PIPELINE]),
    "phase": st.sampled_from(list(Phase)),
    "hidden_size": st.integers(1, 1_000_000),
    "bytes_per_element": st.integers(1, 8),
    "layers": st.integers(1, 10_000),
    "batch": st.integers(1, 1_000_000),
    "tokens": st.integers(1, 10_000_000),
    "devices": st.integers(2, 1_024),
    "micro_batches": st.integers(1, 100_000),
}


@given(st.fixed_dictionaries(sizes))
def test_every_trial_is_a_spec_that_the_lab_takes(given):
    found = trial(Calculation(**given))

    if found is not None:
        assert Spec.parse(found.spec.to_dict()) == found.spec
        assert found.kept.endswith(".")
        assert all(sentence.endswith(".") for sentence in found.differences)
