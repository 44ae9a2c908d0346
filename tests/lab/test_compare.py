"""What the meters saw beside what the plan said; the rest is named and never folded away."""

import pytest

from calculators.lab.compare import Comparison, compare, matrix
from calculators.lab.measurements import Measurement, Prediction, Quantity


def seen(predicted: float, measured: float) -> Comparison:
    prediction = Prediction(quantity=Quantity.WIRE, rank=0, formula=predicted)
    measurement = Measurement(quantity=Quantity.WIRE, rank=0, value=measured, steps=10)
    (comparison,) = compare([prediction], [measurement])
    return comparison


def test_predicted_is_the_sum_of_its_four_parts_and_unexplained_the_rest() -> None:
    prediction = Prediction(
        quantity=Quantity.WIRE, rank=3, formula=1_000, backend_excess=200, framing=96, control=8
    )
    measurement = Measurement(quantity=Quantity.WIRE, rank=3, value=1_310, steps=10)

    (comparison,) = compare([prediction], [measurement])

    assert comparison.to_dict() == {
        "quantity": "wire bytes sent",
        "detail": "",
        "rank": 3,
        "formula": 1_000,
        "backend_excess": 200,
        "framing": 96,
        "control": 8,
        "predicted": 1_304,
        "measured": 1_310,
        "unexplained": 6,
    }


@pytest.mark.parametrize(
    ("predicted", "measured", "is_explained"),
    [(1_000, 1_010, True), (1_000, 990, True), (1_000, 1_011, False), (0, 0, True), (0, 1, False)],
)
def test_more_than_one_percent_unexplained_is_a_failure(
    predicted: float, measured: float, is_explained: bool
) -> None:
    assert seen(predicted, measured).is_explained is is_explained


def test_a_prediction_that_no_meter_saw_is_not_compared() -> None:
    predictions = [Prediction(quantity=Quantity.WIRE, rank=rank, formula=1) for rank in (0, 1)]

    compared = compare(predictions, [Measurement(quantity=Quantity.WIRE, rank=1, value=1, steps=10)])

    assert [c.rank for c in compared] == [1]


def test_the_matrix_has_senders_as_rows_and_an_empty_diagonal() -> None:
    predictions = [
        Prediction(quantity=Quantity.PAIR, rank=0, peer=1, formula=8_288),
        Prediction(quantity=Quantity.PAIR, rank=1, peer=0, formula=48),
    ]
    measurements = [
        Measurement(quantity=Quantity.PAIR, rank=0, peer=1, value=8_289, steps=10),
        Measurement(quantity=Quantity.PAIR, rank=1, peer=0, value=48, steps=10),
    ]
    comparisons = compare(predictions, measurements)

    assert matrix(comparisons, world_size=2, measured=False) == [[0, 8_288], [48, 0]]
    assert matrix(comparisons, world_size=2, measured=True) == [[0, 8_289], [48, 0]]
