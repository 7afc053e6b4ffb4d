"""What the study measured: cross tables from ``cells``, decisions and accuracies from packs."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from stream_tables import classes_of as class_names

from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.right_answers import RightAnswers, right_answers
from lw2g.results.summaries import Difference, wilson
from lw2g_store.packs import Pack
from lw2g_store.stored import Stored

Numbers = NDArray[np.float64]

OF_THE_STUDY = re.compile(r".*/growth-score\.(?P<stream>[a-z-]+)\.(?P<order>\d+)@\d+")
"""The protocols of the study's packs: a pack has no names of classes or folders."""
METHODS = {"s-prompt-plus-plus": "prompts", "hide-lora": "LoRA", "mos": "adapters"}
"""What stands for a method in words: the kind of its sets."""
OPTIONS = {"sema": "router", "ewc": "fisher"}
"""Baselines of options.toml, and the option whose values it compares."""
SAME_CONSTRAINTS = "always, constrained"
"""The row that has a set for each task and trains under the constraints of all other policies, as ``always``
does not unless told: what stands between it and another policy is decisions alone."""


@attrs.frozen(kw_only=True)
class Mean:
    """A mean, and half of its 95 % interval."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.half:.1f}"


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean with the 95 % t-interval over the values.

    >>> mean = mean_of([1.0, 2.0, 3.0])
    >>> mean.mean, round(mean.half, 3)
    (2.0, 2.484)
    """
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return Mean(mean=statistics.fmean(values), half=quantile * statistics.stdev(values) / len(values) ** 0.5)


# -- cross tables ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False)
class Cross:
    """The cross tables of a method: tasks are numbered draw by draw, and in a draw by kind.

    Attributes:
        method: The method.
        tables: By name, as ``cross.py`` writes them.
        kinds: Number of kinds.
    """

    method: str
    tables: Mapping[str, Numbers]
    kinds: int

    @property
    def words(self) -> str:
        """The kind of its sets in words."""
        return METHODS[self.method]

    def hfc(self, reading: str) -> Numbers:
        """Return HFC ``[gradients, spaces]`` of a reading, such as ``queries|all|0.95``."""
        return self.tables[f"hfc|{reading}"]

    def beyond_rank(self, reading: str) -> Numbers:
        """Return HFC less that of random spaces of the same ranks."""
        return self.hfc(reading) - self.tables[f"null|{reading}"]

    def shares(self, reading: str) -> dict[str, float]:
        """Return the shares of the variance of HFC in per cent, and what rank explains."""
        table = self.hfc(reading)
        centred = table - table.mean()
        whole = float((centred**2).sum())
        of_spaces = float((centred.mean(axis=0) ** 2).sum()) * len(table)
        of_gradients = float((centred.mean(axis=1) ** 2).sum()) * len(table)
        by_rank = np.tile(self.tables[f"null|{reading}"], len(table))
        explained = float(np.corrcoef(table.ravel(), by_rank)[0, 1]) ** 2
        shares = {"space": of_spaces / whole, "gradient": of_gradients / whole, "rank": explained}
        shares["interaction"] = 1 - shares["space"] - shares["gradient"]
        return {name: 100 * share for name, share in shares.items()}

    def own(self, reading: str) -> Mean:
        """Return a task's own space less all others, in degrees beyond rank, over draws."""
        return mean_of(self._own(reading).mean(axis=1).tolist())

    def kinds_above(self, reading: str) -> int:
        """Return on how many kinds a task's own space has more degrees beyond rank than all others."""
        return int((self._own(reading).mean(axis=0) > 0).sum())

    def _own(self, reading: str) -> Numbers:
        """Return a task's own space less all others ``[draws, kinds]``."""
        table = self.beyond_rank(reading)
        others = (table.sum(axis=1) - table.diagonal()) / (len(table) - 1)
        return (table.diagonal() - others).reshape(-1, self.kinds)

    def score(self, name: str, reading: str) -> Numbers:
        """Return what rates sets, ``[gradients, spaces]``: the greatest is chosen."""
        table = self.hfc(reading)
        if name == "least":
            return -table
        if name == "greatest":
            return table
        if name == "greatest-beyond-rank":
            return self.beyond_rank(reading)
        if name == "both-means-off":
            return table - table.mean(axis=0) - table.mean(axis=1)[:, None]
        if name == "length":
            return self.tables[f"length|{reading}"]
        if name == "length-beyond-chance":
            return self.tables[f"length|{reading}"] - self.tables[f"length_null|{reading}"]
        if name == "energy":
            return -self.tables[f"energy|{reading}"]
        return self.tables["class-means"]

    def found(self, name: str, reading: str) -> Mean:
        """Return in per cent how often a score finds the set of the task's kind, over the task's draws."""
        return mean_of(self._found(name, reading).mean(axis=1).tolist())

    def found_by_kind(self, name: str, reading: str) -> list[float]:
        """Return the same for each kind of tasks."""
        return [float(share) for share in self._found(name, reading).mean(axis=0)]

    def _found(self, name: str, reading: str) -> Numbers:
        """Return in per cent how often the set is found ``[draws, kinds]``, over draws of the sets."""
        scores = self.score(name, reading)
        draws = len(scores) // self.kinds
        blocks = scores.reshape(draws, self.kinds, draws, self.kinds)
        right = []
        for new in range(draws):
            hits = [
                blocks[new, :, old].argmax(axis=1) == np.arange(self.kinds)
                for old in range(draws)
                if old != new
            ]
            right.append(100 * np.mean(hits, axis=0))
        return np.stack(right)

    def found_between(self, name: str, reading: str) -> str:
        """Return in per cent how often a score finds the kind, with a 95 % interval (Wilson).

        A task counts once, however many draws of sets it chose among: its choices are of one gradient.
        """
        share = self.found(name, reading).mean
        low, high = wilson(share, len(self.score(name, reading)))
        return f"{share:.0f} [{low:.0f}, {high:.0f}]"


def crosses(cells: Path, plan: Mapping[str, Any]) -> list[Cross]:
    """Return the cross tables of the methods that have been measured."""
    found = []
    for method in plan["methods"]:
        path = cells / f"{method}.npz"
        if path.exists():
            with np.load(path) as stored:
                tables = {name: stored[name].astype(np.float64) for name in stored.files}
            found.append(Cross(method=method, tables=tables, kinds=len(plan["kinds"])))
    return found


# -- packs -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False)
class Run:
    """A pack as the study needs it.

    Attributes:
        stream: A stream of hypotheses.toml, or, with sketches and photographs in turn, ``sketch-first``
            or ``photo-first``.
        order: The order of the stream; of sketches and photographs the seed.
        row: The policy, and what else tells rows apart.
        record: Its record.
        answers: Which test images are answered right in the end, named alike in every order.
    """

    stream: str
    order: int
    row: str
    record: Mapping[str, Any]
    answers: RightAnswers

    @property
    def faa(self) -> float:
        """Final average accuracy."""
        return float(self.record["metrics"]["faa"])

    @property
    def sets(self) -> int:
        """Sets in the end."""
        return len(set(self.record["task_to_set"]))

    @property
    def domains(self) -> list[str]:
        """The kind of images of each task, of sketches and photographs in turn."""
        first = self.stream.removesuffix("-first")
        second = "photo" if first == "sketch" else "sketch"
        return [first, second] * (len(self.record["task_to_set"]) // 2)


def runs_of(stored: Stored) -> list[Run]:
    """Return the study's packs."""
    found = []
    for pack, reported in stored.runs:
        named = reported.given and OF_THE_STUDY.fullmatch(reported.given.protocol)
        if not named:
            continue
        stream, order = named["stream"], int(named["order"])
        found.append(
            Run(
                stream=stream,
                order=order,
                row=_row(pack.record),
                record=pack.record,
                answers=_answers(pack, stream, order),
            )
        )
    return found


def _answers(pack: Pack, stream: str, order: int) -> RightAnswers:
    """Return which test images are answered right in the end."""
    last = pack.evaluations[-1]
    # folders are numbered as tasks bring them, and say nothing of what class each is
    is_folder = pack.record["config"]["benchmark"]["name"] == "folder"
    names = class_names(stream, order) if is_folder else pack.record["class_order"]
    return right_answers(last, names, last["task"].astype(np.int64))


def protocol_name(record: Mapping[str, Any]) -> str:
    """Return what the protocol of a run is called, from the folder or the order of its images."""
    benchmark = record["config"]["benchmark"]
    if benchmark["name"] != "folder":
        return f"growth-score.{benchmark['name']}.{benchmark['order_seed']}"
    *_, whole, stream, order = Path("here", benchmark["root"]).parts
    return f"growth-score.{f'{stream}-first' if whole == 'pacs-turns' else stream}.{order}"


def _row(record: Mapping[str, Any]) -> str:
    """Return the row of a run; ``keep`` with as many epochs as others is a row of its own."""
    config = record["config"]
    name = config["baseline"]["name"]
    if name == "simple-cil":
        return "lda"
    if name in OPTIONS:
        return f"{name}, {config['baseline'][OPTIONS[name]]}"
    policy = str(config["policy"]["name"])
    if policy == "always" and config["constraints"]:
        return SAME_CONSTRAINTS
    return "keep, 5 epochs" if policy == "keep" and config["baseline"]["epochs"] == 5 else policy


def chosen(runs: Sequence[Run], stream: str, row: str) -> dict[int, Run]:
    """Return the runs of a row on a stream by order."""
    return {run.order: run for run in runs if (run.stream, run.row) == (stream, row)}


def less(ours: Mapping[Any, Run], theirs: Mapping[Any, Run]) -> Difference | None:
    """Return the mean difference in FAA over the orders of both, in points; None without any."""
    left, right = ({order: run.answers for order, run in own.items()} for own in (ours, theirs))
    return over_orders_and_images(left, right)


def images_seen(record: Mapping[str, Any], policy: str) -> float:
    """Return how many times training saw an image, copies included, as a multiple of the stream's images.

    A copy of ``keep`` trains on what is not set apart, a quarter of a task; a step of ``trial`` sees a batch.
    """
    config = record["config"]
    epochs = float(config["baseline"]["epochs"])
    count = len(record["decisions"])
    if policy.startswith("keep"):
        copies = 0.75 * 2 * epochs * (count - 1)
        last = sum(not decision.get("held") for decision in record["decisions"])
        return (copies + epochs * last) / count
    if policy == "trial":
        images = _images_of_a_task(record)
        trial = config["evidence"]["trial"]
        batch = min(config["baseline"]["batch_size"], 0.75 * images)
        sets = [len(decision["candidates"]) + 1 for decision in record["decisions"][1:]]
        return epochs + trial["steps"] * trial["draws"] * batch * sum(sets) / images / count
    return epochs


def _images_of_a_task(record: Mapping[str, Any]) -> float:
    """Return the training images of a task, of those that the streams of the study have."""
    config = record["config"]["benchmark"]
    classes = len(record["task_classes"][0])
    return float(classes * config.get("train_per_class", 144))


def joins(runs: Sequence[Run], stream: str, row: str) -> tuple[int, int]:
    """Return how many of the third and fourth tasks share a set, and how many of these that of their domain.

    The domain of a set is that of its first task.
    """
    shared = own = 0
    for run in chosen(runs, stream, row).values():
        tasks, domains = run.record["task_to_set"], run.domains
        for task in (2, 3):
            first = tasks.index(tasks[task])
            if first < task:
                shared += 1
                own += domains[first] == domains[task]
    return shared, own


def z_of_second(run: Run) -> tuple[float, float] | None:
    """Return Z of the second task at the first task's set, and by ranks alone; None where not measured."""
    candidates = run.record["decisions"][1]["candidates"]
    measured = (candidates[0]["measures"] or {}).get("hindrance") if candidates else None
    if measured is None or measured["value"] is None:
        return None
    return float(measured["value"]), float(measured["null"])
