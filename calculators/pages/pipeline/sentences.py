"""The sentences of the page *Pipeline*: its bubble, what is drawn of it, and whether formula and timetable agree."""

import math

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.pages.pipeline.case import MOST_OPERATIONS, MOST_STAGES_DRAWN, PipelineCase
from calculators.pages.pipeline.shares import clean, share
from calculators.predict.schedules import SCHEDULES, Schedule, Timetable
from calculators.units import seconds


def headline(case: PipelineCase, played: Timetable | None) -> SafeString | str:
    """Both conventions in one breath, from the timetable of this very step or else from the formula."""
    if played and played.micro_batches == case.micro_batches:
        worked, waited, whole = float(played.busy.mean()), played.bubble_seconds, played.period
    elif case.is_even and case.has_formula:
        worked, waited = case.work_seconds, case.bubble_seconds
        whole = worked + waited
    else:
        return "No formula is known for this case, and the step is too large to be played here."
    if case.stages == 1:
        return f"One stage has nobody to wait for: it works all {seconds(whole)} of a step."
    average = "" if case.is_even else " on average"
    return format_html(
        "In a step of {} each stage{} works {} and waits "
        '<strong class="num"><span class="swatch predicted"></span> {}</strong>: '
        "<strong>{}</strong> of the useful time, <strong>{}</strong> of the whole.",
        seconds(whole),
        average,
        seconds(worked),
        seconds(clean(waited)),
        share(clean(waited) / worked),
        share(clean(waited) / whole),
    )


def what_is_drawn(case: PipelineCase, played: Timetable | None) -> str:
    """How the picture is read, and what it leaves out."""
    if played is None:
        return (
            f"The timetable is played and drawn for up to {MOST_STAGES_DRAWN} stages and {MOST_OPERATIONS:,} "
            "operations; this step is larger, so what follows is from the formulas alone. The Python below plays it "
            "whole."
        )
    sentences = []
    if played.chunks > 1:
        sentences.append(
            "A label is a micro-batch and a chunk of the stage: 3b is the third micro-batch in its second chunk."
        )
    if case.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V):
        sentences.append("Halved boxes run side by side.")
    if case.schedule is Schedule.DUALPIPE:
        sentences.append(f"Micro-batches from {played.micro_batches // 2 + 1} on enter at the last stage.")
    if played.micro_batches < case.micro_batches:
        sentences.append(
            f"Drawn with {played.micro_batches} of the {case.micro_batches:,} micro-batches; the others lengthen "
            "the middle."
        )
    if not math.isclose(played.makespan, played.period):
        sentences.append(
            f"From first to last it takes {seconds(played.makespan)}, but no stage spends more than "
            f"{seconds(played.period)} on a step: as its paper assumes, a stage that is done early starts the next one."
        )
    return " ".join(sentences)


def verdict(case: PipelineCase, played: Timetable | None) -> str:
    """Whether formula and timetable agree, and why not."""
    kind = SCHEDULES[case.schedule]
    if not case.has_formula:
        return f"No formula is known for {kind.name} when messages take time: what is played is the answer."
    if not case.is_even:
        return (
            "The formulas take all stages to be equal. Here the last differs, so what is played is the answer: every "
            "micro-batch passes the slowest stage, and the others wait for it."
        )
    if played is None:
        return f"The formula of {kind.name} is exact {kind.exact_when}. Source: {kind.source}."
    if math.isclose(played.bubble_seconds, case.bubble_seconds, rel_tol=1e-9, abs_tol=1e-12):
        return f"Formula and timetable agree. Source: {kind.source}."
    return (
        f"The timetable differs: the formula of {kind.name} is exact {kind.exact_when}, and with enough micro-batches. "
        f"What is played is the answer. Source of the formula: {kind.source}."
    )
