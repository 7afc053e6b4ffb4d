"""The candidates of the rule of ``--recommended``, for the pages: the table, and what became of each."""

from __future__ import annotations

from collections.abc import Iterator

import frozen_rule
from frozen_claims import Streams, names_of, sides
from frozen_results import Trained
from frozen_trained import TRAINED

CANDIDATES = {
    "frozen": "`chosen`",
    "ranpac-joined": "Adapters of the first task, read on all layers (`ranpac-joined`)",
    "recommended": "Training on every task",
    "recommended-joined": "Training on every task, read on all layers",
}
"""What the page calls the candidates of the rule."""
CALLED = {"frozen": "`chosen`", "recommended": "training on every task"}
"""What the table of the rule calls them, where that is not their name."""


def recommended(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what became of each candidate of the rule, and what it recommends."""
    found = list(frozen_rule.steps(known, runs))
    for step in found:
        what = "taken" if step.replaces else "passed over"
        yield (
            f"- {CANDIDATES[step.name]}: above {CANDIDATES[step.held]} on {len(step.positive)} of "
            f"{len(step.gains)} streams, {_above_auto(known, runs, step.name)} "
            f"({_orders(step)}); {what}."
        )
    settled = " Streams on which a candidate did not run cannot change that." * bool(
        frozen_rule.settled(found)
    )
    verdict = frozen_rule.verdict(found)
    if verdict == frozen_rule.RULE["candidate"][0]["name"]:
        verdict = "the frozen answer"
    yield f"- So `--recommended` stands for **{verdict}**.{settled}"
    _, below = sides(known, runs, TRAINED, "development")
    yield (
        "- Training on the first task, what `--trained` stands for, came after the rule and is no "
        f"candidate: {_above_auto(known, runs, TRAINED)}, below on {len(below)}."
    )


def _orders(step: frozen_rule.Step) -> str:
    """Return the orders that a candidate has on each stream."""
    return "n=" + " to ".join(map(str, sorted({own.orders for own in step.gains.values()})))


def _above_auto(known: Streams, runs: Trained, method: str) -> str:
    """Return on how many development streams a row is above what `start` takes, with its interval."""
    ran = [name for name in names_of("development") if (name, method) in runs]
    above, _ = sides(known, runs, method, "development")
    return f"above `auto` on {len(above)} of {len(ran)}"


def rule(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the candidates and what the rule recommends."""
    names = [candidate["name"] for candidate in frozen_rule.RULE["candidate"]]
    steps = {step.name: step for step in frozen_rule.steps(known, runs)}
    yield f"| | forwards | {' | '.join(frozen_rule.RULE['development'])} |"
    yield f"| --- | ---: |{' ---: |' * len(frozen_rule.RULE['development'])}"
    for name in names:
        spent = frozen_rule.forwards(runs, name)
        cells = []
        for stream in frozen_rule.RULE["development"]:
            if name in steps:
                own = steps[name].gains.get(stream)
                cells.append("-" if own is None else f"{own}, n={own.orders}")
            else:
                cells.append(
                    f"{known[stream].accuracy(frozen_rule.CHOSEN_HEAD):.1f}" if stream in known else "-"
                )
        held = ""
        if name in steps:
            held = f", minus {CALLED.get(steps[name].held, steps[name].held)}"
        forwards = "-" if spent != spent else f"{spent:.1f}"
        yield f"| {CALLED.get(name, name)}{held} | {forwards} | {' | '.join(cells)} |"
