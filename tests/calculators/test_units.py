"""How numbers are printed."""

import doctest

from calculators import units


def test_every_example_holds():
    failures, tried = doctest.testmod(units)

    assert tried >= 10
    assert failures == 0


def test_a_difference_of_almost_nothing_is_not_minus_zero():
    printed = units.plain(-0.001)

    assert printed == "0"


def test_bytes_beyond_every_unit_still_end_in_one():
    printed = units.iec_bytes(2.0**80)

    assert printed == "1,048,576 EiB"
