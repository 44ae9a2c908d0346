"""The page *Link speed*: how fast a split can write over every link, and which link a wanted speed needs."""

from dataclasses import dataclass

from calculators.pages.link_speed.case import FAMILIES, LinkCase
from calculators.pages.link_speed.chart import links_chart
from calculators.pages.link_speed.form import LinkSpeedForm
from calculators.pages.link_speed.sentences import headline, lesson_of_the_cable, warnings
from calculators.pages.link_speed.split import Split
from calculators.pages.link_speed.tables import carrier_table, numbers_table
from calculators.predict.serving import link_speed
from calculators.python_calls import python_call
from calculators.trials import trial
from calculators.workbench import Answer, Calculator, LessonLink, Preset, Table, run_it


@dataclass(frozen=True, kw_only=True)
class LinkPage(Answer):
    """Both splits on every link, and what follows from them."""

    case: LinkCase
    headline: str
    splits: tuple[Split, ...]
    warnings: tuple[str, ...]
    lesson: str
    numbers: Table
    latencies: Table | None


def _answer(form: LinkSpeedForm) -> LinkPage:
    case = form.case
    tp, pp = splits = tuple(Split(family=family, case=case) for family in FAMILIES)
    return LinkPage(
        case=case,
        headline=headline(case, tp),
        splits=splits if case.devices > 1 else splits[:1],
        warnings=tuple(warnings(case)),
        lesson=lesson_of_the_cable(case, tp),
        numbers=numbers_table(case, splits if case.devices > 1 else splits[:1]),
        latencies=carrier_table(case, tp, pp) if case.devices > 1 else None,
        charts=(links_chart(case, tp, pp),) if case.devices > 1 else (),
        python=python_call(
            link_speed,
            case.shape,
            case.layouts["tp"],
            tokens_per_second=case.wanted,
            latency_seconds=float(f"{case.looked_at.link.latency_seconds:.6g}"),
            **case.options,
        ),
        runs=tuple(
            run
            for split in splits
            for run in run_it(
                trial(case.calculation(split.family)),
                label=f"Run it for real: {split.family.upper()}",
                family=split.family,
                back=LINK_SPEED.at(form.address),
            )
        ),
    )


LINK_SPEED = Calculator(
    name="link-speed",
    title="Which link do I need?",
    asks="How fast a model can write when its devices must talk for every token: the link speed you can buy, and the "
    "latency that no money shortens.",
    form=LinkSpeedForm,
    answer=_answer,
    presets=(
        Preset(label="The lessons’ example on two RTX 4090", query=""),
        Preset(label="30 tokens/s are enough", query="wanted=30"),
        Preset(
            label="Llama 3.1 70B on two DGX Sparks",
            query="model=llama-3.1-70b&device=dgx-spark&wanted=3.5&link=connectx-7-spark",
        ),
        Preset(
            label="gpt-oss-120b on two Macs",
            query="model=gpt-oss-120b&bits=4&device=m4-max&wanted=60&link=thunderbolt-5",
        ),
        Preset(
            label="A link of my own",
            query="link=measured&bytes_per_second=1170000000&microseconds=85",
        ),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
