"""What sentences of docs/growth.md may ask of the study: figures and verdicts.

A field is ``{WHO/WHERE/WHAT}``, as in ``scripts/sentences.py``:

- ``{prompts/block-input/rank}``: a method's cross table of all tokens at energy 0.95; also LoRA, adapters.
- ``{keep/glyphs/sets}``: a policy on a stream of the comparison at equal budgets.
- ``{min/sketch-first/shared}``: a policy where sketches and photographs take turns.
- ``{policies/every/streams}``: the streams of the comparison at equal budgets.
- ``{keep/every/images}``: how often a policy's training sees an image, least and most over streams.
- ``{keep-5-epochs/every/undecided}``: on which of its streams a policy is neither above nor below a set
  for each task.
- ``{rules/every/below}``: which rules end below a set for each task under the same constraints, and where;
  ``{rules/published/below}``: the same of a set for each task without constraints.
- ``{prompts/pacs-art-sketch/apart}``: a prompt set for each task minus one prompt set at 224 pixels,
  both under a carried head, over the orders of both.
- ``{lda/every/above}``: points of the floor above a set for each task, least and most over streams.
- ``{verdict/rank/word}``, ``{verdict/rank/found}``: what became of a hypothesis.
"""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from score_pages import CELLS, PLAN, POLICIES, STORE, TAPS
from score_results import (
    SAME_CONSTRAINTS,
    Cross,
    Run,
    chosen,
    crosses,
    images_seen,
    less,
    runs_of,
    z_of_second,
)
from score_verdicts import PACS, READING, judged
from stream_tables import OF_A_STREAM, StreamRun, protocol_of, side_of_zero, with_interval
from stream_tables import runs_of as stream_runs

from lw2g.errors import counted
from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.run_draws import and_listed
from lw2g_store.stored import Stored

Fields = dict[str, str]
FOUND = ("least", "greatest-beyond-rank", "energy", "class-means")
"""Scores that sentences may name, as of ``Cross.score``."""

PROMPTS_APART = ("dual-prompt_always_lda_lda", "dual-prompt_one_lda_key-cosine")
"""Methods of packs at 224 pixels that differ in growth, and in the routing that sets for each task need."""


def told(stored: Stored) -> Fields:
    """Return what stands for each field."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    found, runs = crosses(CELLS, plan["tables"]), runs_of(stored)
    named: dict[tuple[str, str, str], str] = {}
    for cross in found:
        named |= dict(of_cross(cross))
    streams = [*plan["keep"]["streams"], *plan["report"]["streams"]]
    for stream in streams:
        named |= dict(of_policies(runs, stream))
    named["policies", "every", "streams"] = and_listed([f"`{stream}`" for stream in streams])
    for where, than in (("every", SAME_CONSTRAINTS), ("published", "always")):
        sides = rules_apart(runs, streams, than)
        named["rules", where, "above"] = sides[1] or "none of these streams"
        named["rules", where, "below"] = sides[-1] or "none of these streams"
    floor = [less(chosen(runs, name, "lda"), chosen(runs, name, SAME_CONSTRAINTS)) for name in streams]
    means = [apart.mean for apart in floor if apart is not None]
    for row in ("keep", "trial", "keep, 5 epochs"):
        named[_field_name(row), "every", "images"] = span_of_images(runs, streams, row)
    named["keep-5-epochs", "every", "undecided"] = undecided(runs, streams, "keep, 5 epochs")
    named["lda", "every", "above"] = f"{min(means):.0f} to {max(means):.0f}"
    affinity = [run for stream in streams for run in chosen(runs, stream, "affinity").values()]
    # the first task of a run always gets a set: nothing is decided there
    tasks = sum(len(run.record["task_to_set"]) - 1 for run in affinity)
    named["affinity", "every", "own-sets"] = f"{sum(run.sets - 1 for run in affinity)} of {tasks}"
    for name, words in prompts_apart(stream_runs(STORE, of_prompts(stored))).items():
        named["prompts", name, "apart"] = words
    for stream in PACS:
        named |= dict(of_turns(plan["pacs"], runs, stream))
    for verdict in judged(plan, found, runs):
        named["verdict", verdict.name, "word"] = verdict.verdict
        named["verdict", verdict.name, "found"] = verdict.found
    return {f"{{{'/'.join(key)}}}": value for key, value in named.items()}


def of_cross(cross: Cross) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the fields of a cross table: shares of the variance, degrees, how often scores find the kind."""
    for tap in TAPS:
        reading = f"{tap}|{READING}"
        values = {part: f"{share:.1f}" for part, share in cross.shares(reading).items()}
        own = cross.own(reading)
        values["own"] = f"{own.mean:+.1f}"
        values["own-interval"] = f"{own.mean:+.2f} ± {own.half:.2f}"
        values["hfc"] = f"{cross.hfc(reading).mean():.1f}"
        values["tasks"] = str(len(cross.hfc(reading)))
        values["own-kinds"] = str(cross.kinds_above(reading))
        by_kind = cross.found_by_kind("greatest-beyond-rank", reading)
        rest = [share for share in by_kind if share < 100]
        values["kinds-found"] = str(len(by_kind) - len(rest))
        values["kinds-missed"] = f"{min(rest):.0f} to {max(rest):.0f}" if rest else "none"
        values |= {score: cross.found_between(score, reading) for score in FOUND}
        for what, value in values.items():
            yield (cross.words, tap, what), value


def of_policies(runs: Sequence[Run], stream: str) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the fields of the policies on a stream.

    These are accuracy, sets, both with their deviation over orders, the difference from other policies, and
    the least seconds as a multiple of those of ``always``, for a busy machine only adds to them.
    """
    least = seconds(chosen(runs, stream, "always"))
    for row in dict.fromkeys(run.row for run in runs if run.stream == stream):
        own = chosen(runs, stream, row)
        name = _field_name(row)
        tasks = sum(len(run.record["task_to_set"]) for run in own.values())
        yield (name, stream, "orders"), str(len(own))
        yield (name, stream, "faa"), f"{statistics.fmean(run.faa for run in own.values()):.1f}"
        if len(own) > 1:
            for what in ("faa", "sets"):
                deviation = statistics.stdev(getattr(run, what) for run in own.values())
                yield (name, stream, f"{what}-deviation"), f"{deviation:.1f}"
        yield (name, stream, "times"), f"{seconds(own) / least:.1f}"
        if row != "lda":
            sets = [run.sets for run in own.values()]
            seen = statistics.fmean(images_seen(run.record, row) for run in own.values())
            yield (name, stream, "sets"), f"{statistics.fmean(sets):.1f}"
            yield (name, stream, "sets-percent"), f"{100 * sum(sets) / tasks:.0f}"
            yield (name, stream, "images"), f"{seen:.1f}"
        for than, short in (("always", "always"), (SAME_CONSTRAINTS, "constrained"), ("one", "one")):
            apart = less(own, chosen(runs, stream, than))
            if apart is not None:
                yield (name, stream, f"less-{short}"), with_interval(apart)


def _field_name(row: str) -> str:
    """Return what fields call a row of the table of policies."""
    return re.sub("[, ]+", "-", row)


def of_prompts(stored: Stored) -> Stored:
    """Return the packs that :func:`prompts_apart` compares, so that no others are read again."""
    own = []
    for pack, reported in stored.runs:
        of_stream = OF_A_STREAM.fullmatch(protocol_of(reported))
        if of_stream and of_stream["size"] == "224" and pack.submission["method"] in PROMPTS_APART:
            own.append((pack, reported))
    return attrs.evolve(stored, runs=own)


def prompts_apart(runs: Sequence[StreamRun]) -> Fields:
    """Return by stream a prompt set for each task minus one prompt set, over the orders that have both."""
    words = {}
    for stream in sorted({run.stream for run in runs}):
        here = [run for run in runs if run.stream == stream]
        answers = [{run.order: run.answers for run in here if run.method == name} for name in PROMPTS_APART]
        grown, one = answers
        apart = over_orders_and_images(grown, one)
        if apart is None:
            continue
        images = len({image for order in grown.keys() & one.keys() for image in grown[order].images})
        over = f"{counted(apart.n, 'order')} of {counted(images, 'test image')}"
        words[stream] = f"{with_interval(apart)} in {over} of `{stream}`"
    return words


NO_RIVALS = ("lda", "always", SAME_CONSTRAINTS)
"""Rows of the table of policies that neither share a set nor decide."""


def rules_apart(runs: Sequence[Run], streams: Sequence[str], than: str) -> dict[int, str]:
    """Return which rules, and `one`, end above (1) and below (-1) a set for each task, and on which streams.

    With their interval. ``than`` is the row of that set: with constraints as the rules have, or without.
    """
    found: dict[int, dict[str, list[str]]] = {1: {}, -1: {}}
    for stream in streams:
        for row in [row for row in POLICIES if row not in NO_RIVALS]:
            apart = less(chosen(runs, stream, row), chosen(runs, stream, than))
            if apart is None or apart.low is None or apart.high is None:
                continue
            if round(apart.low, 1) > 0:
                found[1].setdefault(row, []).append(stream)
            if round(apart.high, 1) < 0:
                found[-1].setdefault(row, []).append(stream)
    return {side: _by_streams(of_rows) for side, of_rows in found.items()}


def _by_streams(of_rows: Mapping[str, Sequence[str]]) -> str:
    """Return rows with their streams in words; rows that have the same streams stand together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for row in [row for row in POLICIES if row in of_rows]:
        together.setdefault(tuple(of_rows[row]), []).append(row)
    parts = []
    for streams, rows in together.items():
        on = and_listed([f"`{stream}`" for stream in streams])
        parts.append(f"{and_listed([f'`{row}`' for row in rows])} on {on}")
    return "; ".join(parts)


def span_of_images(runs: Sequence[Run], streams: Sequence[str], row: str) -> str:
    """Return how often a policy's training sees an image, the least and the most of the streams' means."""
    ran = [own for stream in streams if (own := chosen(runs, stream, row))]
    seen = [statistics.fmean(images_seen(run.record, row) for run in own.values()) for own in ran]
    return f"{min(seen):.1f} to {max(seen):.1f}"


def undecided(runs: Sequence[Run], streams: Sequence[str], row: str) -> str:
    """Return the streams on which a policy's interval over a set for each task has 0 in it."""
    level = []
    for stream in streams:
        apart = less(chosen(runs, stream, row), chosen(runs, stream, SAME_CONSTRAINTS))
        if apart is None or apart.low is None or apart.high is None:
            continue
        if not side_of_zero(apart.low, apart.high):
            level.append(f"`{stream}`")
    return and_listed(level)


def seconds(own: Mapping[int, Run]) -> float:
    """Return the least seconds of a policy's runs on a stream."""
    return min((float(run.record["seconds"]["total"]) for run in own.values()), default=float("nan"))


def of_turns(
    plan: Mapping[str, Any], runs: Sequence[Run], stream: str
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the fields of the policies where sketches and photographs take turns."""
    for row in plan["policies"]:
        own = chosen(runs, stream, row)
        if not own:
            continue
        second = [run.record["task_to_set"][1] == 0 for run in own.values()]
        yield (row, stream, "seeds"), str(len(own))
        yield (row, stream, "shared"), str(sum(second))
        third = [run.record["task_to_set"][2] == 1 for run in own.values()]
        yield (row, stream, "third-in-second"), f"{sum(third)} of {len(third)}"
        yield (row, stream, "faa"), f"{statistics.fmean(run.faa for run in own.values()):.1f}"
        measured = [pair for run in own.values() if (pair := z_of_second(run)) is not None]
        if measured:
            for what, values in zip(("z", "z-by-ranks"), zip(*measured, strict=True), strict=True):
                yield (row, stream, what), f"{statistics.fmean(values):+.1f}"
