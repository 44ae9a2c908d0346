"""The picture of the bubble."""

import pytest

from tutor.lessons.markup import Piece
from tutor.lessons.pieces import schedule_of
from tutor.lessons.schedule import forward_schedule


def test_each_stage_works_on_every_micro_batch_once_and_one_slot_after_the_stage_before():
    schedule = forward_schedule(4, 8)

    for stage, row in enumerate(schedule.rows):
        assert len(row) == schedule.slots == 11
        assert [cell for cell in row if cell] == list(range(1, 9))
        assert row.index(1) == stage
        assert row.count(None) == schedule.idle_slots == 3


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"stages": "4"}, "Give exactly stages and micro-batches."),
        ({"stages": "four", "micro_batches": "8"}, "stages is four, which is not a whole number."),
        ({"stages": "4", "micro_batches": "99"}, "micro-batches is 99, but the picture shows 1 to 24."),
        ({"stages": "0", "micro_batches": "8"}, "stages is 0, but the picture shows 1 to 16."),
    ],
)
def test_sizes_that_no_picture_can_show_are_refused_in_a_sentence(params, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole sentence is compared below
        schedule_of(Piece(kind="schedule", name="", params=params, line=1))

    assert str(refused.value) == sentence
