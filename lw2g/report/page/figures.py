"""The figures of a page: for each its question, how to read it, its numbers, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from lw2g.report.page import compare, drawings, inside
from lw2g.report.page.numbers import Field, Numbers

__all__ = ["FIGURES", "Figure"]


@attrs.frozen(kw_only=True)
class Figure:
    """A figure.

    Attributes:
        name: Its anchor.
        title: What it is called.
        reading: How to read it.
        of: Its numbers: out of the rows of a table, or out of one run.
        fields: Their columns.
        drawing: A Vega-Lite specification without data.
        scope: What :attr:`of` takes.
        panel: The field that has a drawing a value; empty for a single one.
        picks: Fields of which a reader chooses a value each.
        layout: What the page has to know to size it: a line of text above each bar (``rows``), cells
            (``cells``), a square (``square``), a height that grows with the tasks (``flow``).
        half: Whether it takes half of a wide page.
        legend: Whether the colours of the table's rows are explained below.
        finished: Whether only finished runs have a say.
    """

    name: str
    title: str
    reading: str
    of: Callable[[Any], Numbers]
    fields: Sequence[Field]
    drawing: dict[str, Any]
    scope: Literal["rows", "run"]
    panel: str = ""
    picks: Sequence[str] = ()
    layout: Literal["", "rows", "cells", "square", "flow"] = ""
    half: bool = False
    legend: bool = False
    finished: bool = True


def _fields(**titles: str | tuple[str, int]) -> tuple[Field, ...]:
    """Return fields by name: a title, or a title and decimals."""
    return tuple(
        Field(name=name, title=told)
        if isinstance(told, str)
        else Field(name=name, title=told[0], digits=told[1])
        for name, told in titles.items()
    )


_SHARE = ("share (%)", 1)

FIGURES = (
    Figure(
        name="curves",
        title="Accuracy after each task",
        reading="Mean accuracy over the tasks seen so far. The band is one standard deviation over seeds and "
        "class orders; controls are dashed, and what learned all tasks at once is a level line.",
        of=compare.curves,
        fields=_fields(
            row="row",
            after="after task",
            accuracy=("accuracy (%)", 2),
            low=("one deviation below", 2),
            high=("one deviation above", 2),
            n="runs",
            control="control",
        ),
        drawing=drawings.CURVES,
        scope="rows",
        legend=True,
        finished=False,
    ),
    Figure(
        name="pareto",
        title="Final accuracy against its price",
        reading="Up and to the left is better. The dashed line joins the rows that no other beats in both; "
        "controls are not among them. Seconds compare only where one machine made the runs.",
        of=compare.pareto,
        fields=_fields(
            row="row",
            price="price",
            cost=("of it", 3),
            faa=("FAA (%)", 2),
            cost_std=("its deviation", 3),
            faa_std=("FAA's deviation", 2),
            n="runs",
            best="beaten by none",
            control="control",
        ),
        drawing=drawings.PARETO,
        scope="rows",
        panel="price",
        legend=True,
    ),
    Figure(
        name="differences",
        title="Paired differences",
        reading="How much greater each row is than the chosen one, over pairs of equal seed and class order. "
        "The bar is the 95 % interval (t over the pairs); a single pair has none.",
        of=compare.differences,
        fields=_fields(
            against="minus",
            row="row",
            metric="metric",
            mean=("mean difference", 2),
            low=("low", 2),
            high=("high", 2),
            n="pairs",
        ),
        drawing=drawings.DIFFERENCES,
        scope="rows",
        picks=("against", "metric"),
        layout="rows",
    ),
    Figure(
        name="paper",
        title="Published values against ours",
        reading="Diamonds are what papers print, dots are ours. The table says where from, and in what their "
        "runs are known to differ from ours.",
        of=compare.paper,
        fields=_fields(
            row="row",
            metric="metric",
            theirs=("published", 2),
            theirs_std=("its deviation", 2),
            ours=("ours", 2),
            ours_std=("our deviation", 2),
            n="our runs",
            source="source",
            differs="differs in",
        ),
        drawing=drawings.PAPER,
        scope="rows",
        panel="metric",
        layout="rows",
    ),
    Figure(
        name="costs",
        title="Storage and operations",
        reading="What is kept beside the frozen backbone once the run has ended: vectors of the backbone's "
        "width in prompts (blue) and in the bases that protect old tasks (red), and all numbers that were "
        "added. Operations are floating point, counted, not timed.",
        of=compare.costs,
        fields=_fields(row="row", kind="what", part="part", value=("value", 1)),
        drawing=drawings.BARS,
        scope="rows",
        panel="kind",
        layout="rows",
    ),
    Figure(
        name="times",
        title="Time by part",
        reading="Seconds of wall time, mean over runs. Other is what lies between the parts: checkpoints, "
        "reading images, starting.",
        of=compare.times,
        fields=_fields(row="row", part="part", value=("seconds", 1)),
        drawing=drawings.TIMES,
        scope="rows",
        layout="rows",
    ),
    Figure(
        name="accuracies",
        title="Accuracy of each task over time",
        reading="A[i, t]: accuracy in percent on the test images of task i after task t was learned. The "
        "diagonal is what was learned, the last column what is left.",
        of=inside.accuracies,
        fields=_fields(task="task", after="after task", value=("accuracy (%)", 2)),
        drawing=drawings.MAP,
        scope="run",
        half=True,
        layout="cells",
    ),
    Figure(
        name="forgetting",
        title="Forgetting",
        reading="The dot is a task's final accuracy, the bar reaches up to the best it ever had, the line "
        "marks what it had when it was learned.",
        of=inside.forgetting,
        fields=_fields(
            task="task",
            learned=("when learned (%)", 2),
            best=("best (%)", 2),
            final=("final (%)", 2),
            forgotten=("forgotten (points)", 2),
        ),
        drawing=drawings.FORGETTING,
        scope="run",
        half=True,
    ),
    Figure(
        name="classes",
        title="Class confusion",
        reading="Test images by true and predicted class after the last task, in blocks of tasks; the "
        "darker, the larger the share of a class's images.",
        of=inside.classes,
        fields=_fields(
            true="true class",
            true_name="its name",
            predicted="predicted class",
            predicted_name="name",
            kind="what",
            images="images",
            share=_SHARE,
        ),
        drawing=drawings.CLASSES,
        scope="run",
        half=True,
        layout="square",
    ),
    Figure(
        name="retrieval",
        title="Retrieval confusion",
        reading="Percent of a task's test images for which retrieval named each task. Green is the set that "
        "holds the task, which counts as right (PRA); chance is the PRA of guessing a task.",
        of=inside.retrieval,
        fields=_fields(
            task="task",
            retrieved="retrieved task",
            same="same set",
            images="images",
            share=_SHARE,
        ),
        drawing=drawings.RETRIEVAL,
        scope="run",
        half=True,
        layout="cells",
    ),
    Figure(
        name="flow",
        title="Growth: which set each task got",
        reading="From tasks on the left, in their order, to parameter sets on the right with their number of "
        "tasks. Lines that meet share a set.",
        of=inside.flow,
        fields=_fields(
            task="task", decision="decision", set="set", shared="tasks of the set", classes="classes"
        ),
        drawing=drawings.FLOW,
        scope="run",
        half=True,
        layout="flow",
    ),
    Figure(
        name="drift",
        title="Drift of old features",
        reading="Mean relative change in percent of an old task's test features from one evaluation to the "
        "next, over the images that kept their set.",
        of=inside.drift,
        fields=_fields(task="task", after="after task", value=("change (%)", 2)),
        drawing=drawings.MAP,
        scope="run",
        half=True,
        layout="cells",
    ),
    Figure(
        name="decisions",
        title="Growth: the evidence behind each decision",
        reading="Every candidate set of every task, from set #0 on the left: what was measured, with one "
        "standard error, and the threshold it was held against (green). The table has the error of the "
        "difference between two sets, which is less: both were measured on the same images.",
        of=inside.decisions,
        fields=_fields(
            task="task",
            set="candidate set",
            measure="measure",
            value=("value", 3),
            error=("standard error", 3),
            low=("one error below", 3),
            high=("one error above", 3),
            threshold=("threshold", 3),
            apart=("above the reused or the least set", 3),
            apart_error=("standard error of that", 3),
            outcome="decision",
            sure=("confidence (%)", 1),
            kind="candidate",
            excluded="why excluded",
        ),
        drawing=drawings.DECISIONS,
        scope="run",
        panel="measure",
    ),
    Figure(
        name="nulls",
        title="Evidence against its nulls",
        reading="What was measured of each candidate, from set #0 on the left, beside what chance would give "
        "(a random space of the same rank, a random combination of the task's activations, permuted labels), "
        "and beside what the task's own pre-trained space or the set's own tasks give.",
        of=inside.nulls,
        fields=_fields(task="task", set="candidate set", measure="measure", what="what", value=("value", 3)),
        drawing=drawings.NULLS,
        scope="run",
        panel="measure",
    ),
)
