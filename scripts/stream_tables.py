"""Tables of the packs whose protocol is named after a stream, an order and a size.

Such a protocol is ``folder/like-for-like/turns.0.224@1``. A run that learned all classes at once, because
what trains nothing ends alike whatever the tasks, has ``turns.0.224.at-once@1``; its answers are read by the
tasks of the other one. Streams and their roles stand in ``experiments/streams.toml``.
"""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.disk.protocol import sha_of_labels
from lw2g.errors import counted
from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.found_runs import ReportedRun
from lw2g.results.right_answers import RightAnswers, right_answers, shared_answers
from lw2g.results.summaries import Difference, paired_difference
from lw2g_store.layout import read_protocol
from lw2g_store.packs import Pack
from lw2g_store.stored import Stored

STREAMS = Path(__file__).resolve().parents[1] / "experiments" / "streams.toml"
CLASSES = STREAMS.with_name("stream_classes.json")
"""The class behind each target of an order, ``SET/NUMBER``, as carries/lay_out.py lays them out."""
OF_A_STREAM = re.compile(
    r"folder/like-for-like/(?P<stream>[a-z-]+)\.(?P<order>\d+)\.(?P<size>\d+)(?P<once>\.at-once)?@(?P<version>\d+)"
)
FLOOR = "simple-cil_lda"
"""The method that others are compared with: ``lda`` on frozen features."""
ANSWER = "simple-cil_auto"
"""The frozen answer."""
LABELS = {
    FLOOR: "`lda` (the floor)",
    "simple-cil_cosine": "class means (`simple-cil`) (floor)",
    "simple-cil_mahalanobis": "`mahalanobis` (floor)",
    "simple-cil_ridge": "`ridge`, random units (floor)",
    "simple-cil_klda": "`klda` (floor)",
    "ranpac": "`ranpac adapt=none` (floor)",
    ANSWER: "`--recommended`",
    "ranpac_always": "`ranpac`, adapters",
    "ranpac_always_running": "`ranpac`, adapters, `penalty=running`",
    "slca-plus-plus_always_lda_gated_expert": "training on every task",
    "ranpac_always_running_joined": "`ranpac`, adapters, 12 layers",
    "slca-plus-plus_always_auto_first-1": "`--trained`",
    "slca-plus-plus_always_auto_first-2": "training on two tasks",
    "slca-plus-plus_always_lda_gated_expert_joined": "training on every task, 12 layers",
    "slca-plus-plus_always_lda_gated_beside_joined": "training on every task, beside the frozen answer",
    "slca-plus-plus_always_lda": "`slca-plus-plus`, carried `lda`",
    "slca-plus-plus_always_linear": "`slca-plus-plus` as published",
    "finetune_always_lda": "one LoRA (`finetune`), carried `lda`",
    "dual-prompt_one_lda_key-cosine": "one prompt set, carried `lda`",
    "dual-prompt_always_lda_lda": "a prompt set a task, three asked, carried `lda`",
    "ssiat_always_lda": "`ssiat`, carried `lda`",
    "dual-prompt_always_linear_key-cosine": "`dual-prompt`, a set a task, as published",
    "hide-prompt_always_linear_classifier": "`hide-prompt`, a set a task, as published",
    "joint_always_linear": "`joint`: all at once (control)",
    "joint_always_lda": "`joint` under `lda` (control)",
}
"""What the methods of packs are called in tables, those on frozen features first: (floor)."""
FROZEN = frozenset(list(LABELS)[:6])
"""Methods that train nothing."""
FIRST_TASK = ("ranpac", "aper-adapter", "aper-vpt-deep")
"""Baselines that train on the first task alone."""


@attrs.frozen(kw_only=True)
class StreamRun:
    """A pack as a table needs it.

    Attributes:
        path: Its folder.
        stream: The stream.
        order: Which order of it.
        size: Pixels on a side.
        method: The method, as the store's folders call it.
        faa: Mean over the stream's tasks of accuracy after the last one, in per cent.
        told: FAA as the pack itself says it; of a run that learned all classes at once that of one task.
        answers: The answers after the last task, whose images have the same names in every order.
        kept: Numbers kept: parameters and statistics.
        forwards: Operations of the training and of what follows it on training images, in forwards of the
            bare backbone for each training image.
    """

    path: Path
    stream: str
    order: int
    size: int
    method: str
    faa: float
    told: float
    answers: RightAnswers
    kept: int
    forwards: float


def runs_of(store: Path, stored: Stored) -> list[StreamRun]:
    """Return the packs of a store whose protocol is that of a stream.

    Raises:
        ValueError: ``streams.toml`` does not have the stream, or the test images of a run that learned all
            classes at once are not those of the stream, or two packs are of one method and order, or call
            two images by one name.
    """
    known = _streams()
    bare = _bare_operations(stored)
    hashes: dict[Hashable, str] = {}
    runs = []
    for pack, reported in stored.runs:
        named = OF_A_STREAM.fullmatch(protocol_of(reported))
        if named is None:
            continue
        if named["stream"] not in known:  # without a role it would stand in no table
            raise ValueError(f"{pack.path}: {STREAMS.name} has no stream {named['stream']!r}")
        record = pack.record
        storage = record["storage"]
        answers = _answers(store, named, pack)
        _require_same_images(hashes, pack, answers)
        runs.append(
            StreamRun(
                path=pack.path,
                stream=named["stream"],
                order=int(named["order"]),
                size=int(named["size"]),
                method=_method(pack),
                # a run that learned all classes at once has one task; its answers count by the stream's
                faa=answers.accuracy if named["once"] else float(record["metrics"]["faa"]),
                told=float(record["metrics"]["faa"]),
                answers=answers,
                kept=storage["parameters"] + storage["statistics"],
                forwards=_forwards(record, known[named["stream"]], bare.get(_counted_on(record), 0.0)),
            )
        )
    _require_one_a_cell(runs)
    return runs


def _require_same_images(hashes: dict[Hashable, str], pack: Pack, answers: RightAnswers) -> None:
    """Refuse a pack whose images are other ones than go by the same names in packs before it; note its own.

    Raises:
        ValueError: The first such image. Packs from before hashes of images say nothing.
    """
    for image, own in zip(answers.images, pack.record.get("image_hashes") or (), strict=False):
        if hashes.setdefault(image, own) != own:
            raise ValueError(f"{pack.path}: its image {image} is another one than in other packs")


def _require_one_a_cell(runs: Sequence[StreamRun]) -> None:
    """Refuse two packs of a method on one order, which a table would count as two orders.

    Raises:
        ValueError: There are two.
    """
    met: dict[tuple[str, int, int, str], Path] = {}
    for run in runs:
        cell = (run.stream, run.order, run.size, run.method)
        if cell in met:
            raise ValueError(f"{run.path} and {met[cell]} are of the same method and order; remove one")
        met[cell] = run.path


def _bare_operations(stored: Stored) -> dict[tuple[int, str], float]:
    """Return the operations of a bare forward by where they were counted.

    Runs with a frozen expert counted them; an expert that reads several layers takes more.
    """
    found: dict[tuple[int, str], float] = {}
    for pack, _ in stored.runs:
        if bare := pack.record["flops"].get("expert_per_image"):
            place = _counted_on(pack.record)
            found[place] = min(float(bare), found.get(place, float(bare)))
    return found


def _counted_on(record: Mapping[str, Any]) -> tuple[int, str]:
    """Return pixels on a side and the kind of device: attention is counted as its kernels are there."""
    device, _, _ = record["environment"]["device"].partition(":")
    return int(record["config"]["backbone"]["image_size"]), device


def _forwards(record: Mapping[str, Any], stream: Mapping[str, Any], bare: float) -> float:
    """Return the bare forwards for each training image; 1 for what reads features once, 0 where unknown.

    Counted are the steps on images, the images that a carry reads again, and one forward where a head in
    closed form reads all images in the end.
    """
    config = record["config"]["baseline"]
    step = record["flops"]["training_per_image"]
    if step is None:
        return 1.0
    if not bare:
        return 0.0
    # the last task of a stream may be smaller
    classes = stream.get("classes", stream["tasks"] * stream["increment"])
    # 0 of an option that has it: all tasks train
    trained_tasks = 1 if config["name"] in FIRST_TASK else config.get("trained_tasks") or stream["tasks"]
    epochs = config["epochs"] * min(1, trained_tasks * stream["increment"] / classes)
    images = classes * stream["train_per_class"]
    carried = (record["findings"].get("carry_forwards") or 0) / images
    closed = config["name"] in FIRST_TASK or config.get("head", "linear") != "linear"
    return float(epochs * step / bare + carried + closed)


def _method(pack: Pack) -> str:
    """Return the method as the store's folders call it, where needed with carry, penalty, expert and end.

    The folders name baseline, policy and head; most runs carry the head by ``affine``, and ``ranpac`` chooses
    its penalty on the last task.
    """
    config = pack.record["config"]
    parts = [str(pack.submission["method"])]
    if config["baseline"].get("head_carry") == "gated":
        parts.append("gated")
    if config["baseline"].get("penalty") == "running":
        parts.append("running")
    beside = {"frozen": "expert", "auto": "beside"}.get(config.get("routing", {}).get("expert"))
    if beside:
        parts.append(beside)
    if trained_tasks := config["baseline"].get("trained_tasks"):
        parts.append(f"first-{trained_tasks}")
    # `auto` belongs to the head that is chosen, and is no choice of its own
    if config["backbone"].get("layers", 1) not in (1, "auto"):
        parts.append("joined")
    return "_".join(parts)


@lru_cache(maxsize=1)
def _streams() -> Mapping[str, Any]:
    """Return the facts of every stream by its name."""
    streams: Mapping[str, Any] = tomllib.loads(STREAMS.read_text(encoding="utf-8"))["stream"]
    return streams


def is_apart(stream: str) -> bool:
    """Return whether a stream has the images of other report streams, which it would count twice."""
    return bool(_streams()[stream].get("apart", False))


def shared(role: str) -> Iterator[str]:
    """Yield each stream of a role: its size, what it shares with images of choices, what may have touched it.

    What has touched several streams is told once, after what is told of each.
    """
    streams = {name: facts for name, facts in _streams().items() if facts["role"] == role}
    touched: dict[str, list[str]] = {}
    for name, facts in streams.items():
        for words in facts["touched"].split("; "):
            touched.setdefault(words, []).append(name)
    for name, facts in streams.items():
        own = [words for words, names in touched.items() if names == [name]]
        classes = facts.get("classes", facts["tasks"] * facts["increment"])
        images = f"{facts['train_per_class']} + {facts['test_per_class']}"
        size = f"{classes} classes, {facts['tasks']} tasks, {images} images"
        yield f"- `{name}` ({size}): {'; '.join([facts['shares'], *own])}."
    for words, names in touched.items():
        if len(names) > 1:
            yield f"- {', '.join(f'`{name}`' for name in names)}: {words}."


def protocol_of(run: ReportedRun) -> str:
    """Return the id of the protocol that the store has a run under."""
    assert run.given is not None, "a run of a store"
    return run.given.protocol


def _answers(store: Path, named: re.Match[str], pack: Pack) -> RightAnswers:
    """Return the answers of a run by the tasks of its stream, whose labels and order must be its own.

    Raises:
        ValueError: They are not.
    """
    last = pack.evaluations[-1]
    tasks = last["task"].astype(np.int64)
    if named["once"]:
        stream = read_protocol(store, named[0].replace(".at-once", ""))["facts"]
        task_of = {own: task for task, classes in enumerate(stream["tasks"]) for own in classes}
        tasks = np.array([task_of.get(own, -1) for own in last["true"].tolist()])
        if sha_of_labels(last["true"], tasks) != stream["test_labels"]:
            raise ValueError(f"{pack.path}: its test images are not those of {named['stream']}")
    return right_answers(last, classes_of(named["stream"], int(named["order"])), tasks)


def classes_of(stream: str, order: int) -> Sequence[str]:
    """Return the class behind each target of an order, ``SET/NUMBER``, by which images pair across orders.

    Raises:
        ValueError: The order is not told.
    """
    stream = _streams().get(stream, {}).get("orders_of", stream)
    orders = _all_classes().get(stream, ())
    if order >= len(orders):
        raise ValueError(f"{CLASSES.name} does not tell the classes of {stream}, order {order}; add them")
    return str(orders[order]).split()


@lru_cache(maxsize=1)
def _all_classes() -> Mapping[str, Sequence[str]]:
    known: Mapping[str, Sequence[str]] = json.loads(CLASSES.read_text(encoding="utf-8"))
    return known


# -- lines -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Line:
    """A method on a stream: its runs, one an order, and those of the floor."""

    stream: str
    method: str
    runs: Sequence[StreamRun]
    floor: Sequence[StreamRun]

    @property
    def faa(self) -> float:
        """Mean FAA over orders."""
        return statistics.fmean(run.faa for run in self.runs)

    @cached_property
    def less_the_floor(self) -> Difference | None:
        """Return the paired difference from the floor over the orders of both; None for the floor itself."""
        return None if self.method == FLOOR else over_orders_and_images(*self._beside_the_floor())

    def less_by_orders(self) -> Difference | None:
        """Return the same with a t interval over orders alone, which orders that end alike do not have."""
        sides = self._beside_the_floor()
        return paired_difference(*({order: own.accuracy for order, own in of.items()} for of in sides))

    def _beside_the_floor(self) -> tuple[dict[int, RightAnswers], dict[int, RightAnswers]]:
        """Return the answers by order, and those of the floor."""
        ours, theirs = ({run.order: run.answers for run in runs} for runs in (self.runs, self.floor))
        if self.floor and len(_streams()[self.stream]["sha256"]) == 1:
            # every order has the same images of the same classes, and the floor sees no order
            known = self.floor[0].answers
            theirs = {order: in_order_of(known, answers) for order, answers in ours.items()} | theirs
        return ours, theirs


def in_order_of(known: RightAnswers, other: RightAnswers) -> RightAnswers:
    """Return answers that are alike in every order, with the places of images and their shares in another."""
    right = dict(zip(known.images, known.right.tolist(), strict=True))
    return attrs.evolve(other, right=np.array([right[image] for image in other.images]))


def _difference(line: Line) -> str:
    """Return how far a line is above the floor, and over how many orders where it has more."""
    apart = line.less_the_floor
    if apart is None:
        return "-"
    return with_interval(apart) + ("" if apart.n == len(line.runs) else f" ({counted(apart.n, 'order')})")


def with_interval(apart: Difference) -> str:
    """Return a difference and its interval, as all pages print them."""
    return f"{apart.mean:+z.1f} [{apart.low:+z.1f}, {apart.high:+z.1f}]"


def side_of_zero(low: float, high: float) -> int:
    """Return 1 for an interval above 0 as pages print it, -1 for one below 0, and 0 for one that holds it."""
    return (round(low, 1) > 0) - (round(high, 1) < 0)


def _orders(line: Line) -> str:
    """Return how many orders there are, and whether all give the very same answers to the same images."""
    told = str(len(line.runs))
    if len(line.runs) > 1 and shared_answers([run.answers for run in line.runs]) is not None:
        told += ", alike"
    return told


def _forwards_shown(line: Line) -> str:
    forwards = statistics.fmean(run.forwards for run in line.runs)
    return f"{forwards:.1f}" if forwards else "-"


COLUMNS: Mapping[str, tuple[str, Callable[[Line], str]]] = {
    "method": ("method", lambda line: LABELS.get(line.method, line.method)),
    "orders": ("orders", _orders),
    "faa": ("FAA", lambda line: f"{line.faa:.1f}"),
    "worst": ("worst order", lambda line: f"{min(run.faa for run in line.runs):.1f}"),
    "less": ("minus frozen `lda`", _difference),
    "forwards": ("forwards", _forwards_shown),
    "kept": ("numbers kept", lambda line: f"{statistics.fmean(run.kept for run in line.runs):,.0f}"),
}
"""The columns: what stands above them, and what they say of a line."""
WORDS = {"method"}


def lines_of(
    runs: Iterable[StreamRun],
    role: str,
    size: int,
    methods: Sequence[str] | None = None,
    streams: Sequence[str] | None = None,
) -> list[Line]:
    """Return the lines of a table: every stream of a role, and on it every method that has packs.

    Args:
        runs: All runs.
        role: ``report`` or ``development``.
        size: Pixels.
        methods: The methods in their order; None for all.
        streams: The streams; None for all.
    """
    own = [run for run in runs if run.size == size]
    wanted = methods if methods is not None else sorted({run.method for run in own}, key=_rank)
    lines = []
    for stream in (name for name, facts in _streams().items() if facts["role"] == role):
        if streams is not None and stream not in streams:
            continue
        floor = _runs(own, stream, FLOOR)
        for method in wanted:
            if found := _runs(own, stream, method):
                lines.append(Line(stream=stream, method=method, runs=found, floor=floor))
    return lines


def matrix(lines: Sequence[Line], methods: Sequence[str]) -> Iterator[str]:
    """Yield a table in Markdown with a column a stream: FAA of the floor, and how far others are from it.

    Each difference is over the orders that both have, so that a row with fewer is compared with its equals.

    Args:
        lines: What its cells tell.
        methods: Its rows; one without any line is left out.
    """
    streams = list(dict.fromkeys(line.stream for line in lines))
    by_place = {(line.method, line.stream): line for line in lines}
    most = {each: max(len(line.runs) for line in lines if line.stream == each) for each in streams}
    heads = [f"{each} ({counted(most[each], 'order')})" for each in streams]
    yield f"| | {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(streams)}"
    known = {line.method for line in lines}
    for method in (each for each in methods if each in known):
        cells = []
        for each in streams:
            line = by_place.get((method, each))
            cells.append("-" if line is None else _from_the_floor(line, most[each]))
        yield f"| {LABELS.get(method, method)} | {' | '.join(cells)} |"


def _from_the_floor(line: Line, most: int) -> str:
    """Return the floor's accuracy, or another's difference from it; its orders where others have more."""
    apart = line.less_the_floor
    if apart is None:
        return f"{line.faa:.1f}"
    return with_interval(apart) + ("" if apart.n == most else f", n={apart.n}")


def _rank(method: str) -> tuple[int, str]:
    known = list(LABELS)
    return (known.index(method) if method in known else len(known), method)


def _runs(runs: Iterable[StreamRun], stream: str, method: str) -> list[StreamRun]:
    found = [run for run in runs if (run.stream, run.method) == (stream, method)]
    return sorted(found, key=lambda run: run.order)


def packs_behind(line: Line, root: Path) -> Iterator[str]:
    """Yield the pack of each order of a line, then its difference from the floor and what that is over."""
    row = f"{line.stream}, {line.runs[0].size} px, {LABELS.get(line.method, line.method)}"
    for run in line.runs:
        once = ""
        if abs(run.faa - run.told) > 0.005:
            once = f" by the stream's tasks, {run.told:.2f} as the pack's one task"
        yield f"{row}, order {run.order}: FAA {run.faa:.2f}{once}, {run.path.relative_to(root)}"
    apart = line.less_the_floor
    if apart is not None:
        images = len({image for run in line.runs for image in run.answers.images})
        over = f"{counted(apart.n, 'order')} and {images:,} test images"
        if apart.n == 1:
            over = f"{len(line.runs[0].answers.images):,} test images of one order"
        yield f"{row}, minus `lda`: {with_interval(apart)} over {over}"


def markdown(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, which is of one stream."""
    yield f"| {' | '.join(head for head, _ in COLUMNS.values())} |"
    yield f"| {' | '.join('---' if name in WORDS else '---:' for name in COLUMNS)} |"
    for line in lines:
        yield f"| {' | '.join(cell(line) for _, cell in COLUMNS.values())} |"
