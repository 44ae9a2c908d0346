"""The bench judges fairly: slow machines get the time that they need, and noise is never called a pass."""

import numpy as np
import pytest

from tests.bench.metering import ratio_of_medians, verdicts
from tests.bench.results import at_most, rate, table, within


def test_a_time_is_judged_beside_the_reference_loop_and_both_limits_are_printed() -> None:
    slow = within("a page", 25.0, 20, "ms").judged_at(1.5)

    assert (slow.goal, slow.met) == ("≤ 20; 30 at 1.50 × the loop", True)
    assert within("a page", 31.0, 20, "ms").judged_at(1.5).met is False


def test_a_quick_machine_gets_no_less_time_than_the_goal() -> None:
    assert within("a page", 19.0, 20, "ms").judged_at(0.5).met is True


def test_a_rate_is_judged_beside_the_reference_loop_too() -> None:
    slow = rate("layouts", 1.5e6, 2e6, "layouts/s").judged_at(1.6)

    assert (slow.goal, slow.met) == ("≥ 2e+06; 1.25e+06 at 1.60 × the loop", True)
    assert rate("layouts", 1.2e6, 2e6, "layouts/s").judged_at(1.6).met is False


def test_a_quick_machine_must_reach_no_lower_rate_than_the_goal() -> None:
    assert rate("layouts", 1.9e6, 2e6, "layouts/s").judged_at(0.5).met is False
    assert rate("layouts", 2.1e6, 2e6, "layouts/s").judged_at(0.5).met is True


def test_what_was_judged_beside_one_loop_is_not_judged_beside_another() -> None:
    judged = rate("layouts", 1.5e6, 2e6, "layouts/s").judged_at(1.6)

    assert judged.judged_at(1.0) == judged.judged_at(9.0) == judged


def test_a_count_is_judged_the_same_everywhere() -> None:
    assert at_most("queries", 13, 12, "queries").judged_at(3.0).met is False


def test_the_interval_of_a_ratio_holds_the_ratio_that_was_put_in() -> None:
    rng = np.random.default_rng(7)
    bare = rng.lognormal(0, 0.2, 4_000)
    metered = 1.04 * rng.lognormal(0, 0.2, 4_000)

    ratio, low, high = ratio_of_medians(metered, bare, draws=500)

    assert low < 1.04 < high
    assert low < ratio < high


@pytest.mark.parametrize(
    ("metered", "control", "met", "control_met"),
    [
        ((1.00, 0.98, 1.02), (1.0, 0.98, 1.02), True, True),
        ((1.06, 1.04, 1.08), (1.0, 0.98, 1.02), False, True),
        ((1.00, 0.95, 1.04), (1.0, 0.96, 1.04), None, False),
    ],
    ids=["within the bound", "over the bound", "control too wide"],
)
def test_a_control_wider_than_three_percent_makes_the_measurement_too_noisy(
    metered: tuple[float, float, float],
    control: tuple[float, float, float],
    met: bool | None,
    control_met: bool,
) -> None:
    results = verdicts(metered, control)

    assert [result.met for result in results] == [met, control_met]
    assert ("too noisy" in table(results)) is (met is None)
