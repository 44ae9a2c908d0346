"""The library's page: what it shows, runs; the modules that it names are there."""

import doctest
import re
from pathlib import Path

import numpy as np

from calculators.predict.compute import training_flops
from calculators.predict.models.catalogue import MODELS
from tests.predict import test_timing as published

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "predict.md"


def test_every_example_of_the_page_gives_what_it_says():
    found = doctest.testfile(str(PAGE), module_relative=False)

    assert found.attempted > 20
    assert found.failed == 0


def test_every_module_in_the_table_exists():
    table = PAGE.read_text().split("## Where things are")[1].split("## ")[0]
    named = set(re.findall(r"`([\w/]+)`", table))

    assert len(named) > 12
    for name in named:
        place = ROOT / "calculators" / "predict" / name
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_the_errors_that_the_page_states_are_those_that_the_tests_find():
    korthikanti = (*published.korthikanti(full=True), *published.korthikanti(full=False))
    narayanan, llama_3 = published.narayanan(), published.llama_3(MODELS["llama-3.1-405b"].shape)
    counted = [model for model in MODELS.values() if model.published_parameters]
    found = {
        "Korthikanti 2022, table 5": published.second_errors(korthikanti),
        "Narayanan 2021, table 1": [
            published.throughput(run, published.gpt_flops(run, full=True)) / run.measured - 1
            for run in narayanan
        ],
        "Llama 3, table 4": [
            published.throughput(run, training_flops(run.shape, tokens=run.tokens, batch=run.batch))
            / run.measured
            - 1
            for run in llama_3
        ],
        f"Parameters of {len(counted)} published models": [
            model.parameters / model.published_parameters - 1 for model in counted
        ],
    }

    for name, errors in found.items():
        stated = re.search(rf"\| {name}[^|]*\| ([\d.]+) % \| ([\d.]+) % \|", PAGE.read_text())
        sizes = np.abs(errors) * 100
        assert stated.groups() == (f"{sizes.mean():.1f}", f"{sizes.max():.1f}"), name
