"""One cell of the study: trained once, read under every carry.

    python experiments/carries/cell.py --stream turns --order 0 --method slca-plus-plus --size 224
        --data DATA --weights FILE --runs RUNS --out RESULTS

The method is trained by ``lw2g run`` with a carried ``lda`` head; what it trains does not depend on the
carry. Its checkpoints give features of the task's images before and after each task, and of test images of
all classes seen; numpy then does what each carry would have done. The cell is refused unless its ``affine``
ends where the run itself ended, to 0.01 points. Features are not kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from carrying import Discriminant, Rows, fit, gates
from numpy.typing import NDArray

STREAMS = Path(__file__).resolve().parents[1] / "streams.toml"
METHODS = Path(__file__).with_name("methods.toml")

Labels = NDArray[np.int64]

COMPONENTS = ("baseline", "policy", "retrieval", "constraint")
"""Options of ``methods.toml`` that name a component."""

AT_ONCE = ("frozen", "cosine", "mahalanobis", "klda")
"""Methods that train nothing and choose nothing task by task: they learn all classes at once."""

CARRIES = ("none", "shift", "affine", "auto", "gate", "gate-shift", "affine-means")
"""``gate`` is the gate over ``affine``; the last two, ``gate`` over ``shift`` and ``affine`` that leaves
the scatter, are exploratory."""

VARIANTS = (*CARRIES, "fresh", "fresh-means", "raw")
"""``fresh``: all training images measured anew under the last state; ``fresh-means``: their means under the
scatter of ``none``; ``raw``: ``lda`` on frozen features."""


def command(
    stream: str,
    order: int,
    method: str,
    size: int,
    data: Path,
    weights: Path,
    run: Path,
    *,
    methods: Path = METHODS,
) -> list[str]:
    """Return the command that trains a cell."""
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    # what trains nothing ends alike whatever the tasks; at once it is evaluated once
    tasks = facts["tasks"] if method in AT_ONCE else 1
    options = {
        **tomllib.loads(methods.read_text())[method],
        "benchmark.root": str(data / stream / str(order)),
        "benchmark.increment": facts["increment"] * tasks,
        "benchmark.train_per_class": facts["train_per_class"],
        "benchmark.test_per_class": facts["test_per_class"],
        "benchmark.train_transform": "none",
        "benchmark.test_resize": "squash",
        "backbone.model": "vit_tiny_patch16_224",
        "backbone.image_size": size,
        "backbone.mean": "[0.5, 0.5, 0.5]",
        "backbone.std": "[0.5, 0.5, 0.5]",
        "run.precision": "bf16-mixed",
        "run.seed": order,
        "run.protocol": "like-for-like",
    }
    if "classes" in facts:
        # of which the last task has fewer
        options["benchmark.uneven"] = "true"
    named = [f"--{kind}={options.pop(kind)}" for kind in COMPONENTS if kind in options]
    chosen = [f"--set={key}={value}" for key, value in options.items()]
    return [
        "lw2g",
        "run",
        *named,
        "--benchmark=folder",
        "--backbone=timm",
        f"--weights={weights}",
        *chosen,
        f"--out={run}",
    ]


def train(run: Path, ordered: list[str]) -> dict[str, Any]:
    """Train a run, or finish it, and return its record."""
    record = run / "record.json"
    if not record.exists():
        subprocess.run(ordered, check=True, stdout=subprocess.DEVNULL)
    elif not finished(json.loads(record.read_text())):
        subprocess.run(["lw2g", "resume", str(run)], check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(record.read_text())
    return found


def finished(record: dict[str, Any]) -> bool:
    """Return whether a run has learned all its tasks."""
    return len(record["task_to_set"]) == int(record["tasks"])


class Images:
    """The images of a stream by class, those of the test set transformed once."""

    def __init__(self, root: Path, facts: dict[str, Any]) -> None:
        self.increment, self.tasks = facts["increment"], facts["tasks"]
        self._files = {
            split: _files(root / split, facts[f"{split}_per_class"]) for split in ("train", "test")
        }
        self._ready: dict[Path, Any] = {}

    def of(self, split: str, first: int, last: int) -> tuple[list[Path], Labels]:
        """Return the files of the tasks from the first to the last, both included, and their classes."""
        classes = range(first * self.increment, (last + 1) * self.increment)
        files = [path for label in classes for path in self._files[split][label]]
        labels = [label for label in classes for _ in self._files[split][label]]
        return files, np.array(labels)

    def features(self, model: Any, split: str, first: int, last: int) -> tuple[Rows, Labels]:
        """Return a model's features of the images of some tasks, in batches as the run itself forms them."""
        files, labels = self.of(split, first, last)
        model.batch_size = 32 if split == "test" else 64
        if split == "train":
            return model.features(files).double().numpy(), labels
        for path in files:
            if path not in self._ready:
                self._ready[path] = model.transform(path)
        return model.features([self._ready[path] for path in files]).double().numpy(), labels


def _files(folder: Path, limit: int) -> list[list[Path]]:
    return [sorted(own.iterdir())[:limit] for own in sorted(folder.iterdir())]


def states(run: Path, tasks: int, weights: Path) -> Iterator[Any]:
    """Yield the models that a run had after each task."""
    import lw2g

    for task in range(1, tasks + 1):
        yield lw2g.load(run, task=task, weights=weights)


def frozen(run: Path, images: Images, weights: Path) -> dict[str, Any]:
    """Return frozen features of all images of a stream."""
    (model,) = [*states(run, 1, weights)]
    features = {split: images.features(model, split, 0, images.tasks - 1) for split in ("train", "test")}
    return {split: rows for split, (rows, _) in features.items()}


def evaluate(run: Path, images: Images, weights: Path, bare: dict[str, Rows]) -> dict[str, NDArray[Any]]:
    """Return what each carry answers after each task, with and without the frozen expert.

    Args:
        run: The trained run.
        images: Those of its stream.
        weights: The backbone's.
        bare: Frozen features of its training and test images.
    """
    tasks, increment = images.tasks, images.increment
    _, train_labels = images.of("train", 0, tasks - 1)
    _, test_labels = images.of("test", 0, tasks - 1)
    dim = bare["train"].shape[1]
    heads = {name: Discriminant(dim) for name in CARRIES}
    expert = Discriminant(dim)
    # what `affine` is with the carry of one step left out, by step
    without: list[Discriminant] = []
    accuracy = np.full((len(VARIANTS), 2, tasks, tasks), np.nan, np.float32)
    steps: list[list[float]] = []
    answers = np.zeros((len(VARIANTS), 2, len(test_labels)), np.int16)
    earlier: Any = None
    old_test: tuple[Rows, Labels] | None = None

    for task, model in enumerate(states(run, tasks, weights)):
        after, labels = images.features(model, "train", task, task)
        test, true = images.features(model, "test", 0, task)
        if task:
            before, _ = images.features(earlier, "train", task, task)
            new_test, _ = images.features(earlier, "test", task, task)
            assert old_test is not None
            motion = fit("affine", before, after, labels)
            left_out = heads["affine"].copy()
            for head in without:
                head.carry(motion)
            without.append(left_out)
            test_before = np.concatenate([old_test[0], new_test])
            steps.append(step(heads, before, after, labels, test_before, test, true, task * increment))
        for head in (*heads.values(), *without):
            head.learn(after, labels)
        own = train_labels // increment == task
        expert.learn(bare["train"][own], train_labels[own])
        beside = expert.posteriors(bare["test"][: len(true)])
        scores = {name: head.posteriors(test) for name, head in heads.items()} | {"raw": beside}
        if task == tasks - 1:
            rows, _ = images.features(model, "train", 0, task)
            fresh = Discriminant(dim)
            fresh.learn(rows, train_labels)
            stale = heads["none"].copy()
            stale.mean = fresh.mean
            scores |= {"fresh": fresh.posteriors(test), "fresh-means": stale.posteriors(test)}
        for name, own_scores in scores.items():
            for with_expert in (0, 1):
                answered = (own_scores + with_expert * beside).argmax(1)
                place = VARIANTS.index(name)
                right = answered == true
                accuracy[place, with_expert, task, : task + 1] = _by_task(right, true, increment, task + 1)
                if task == tasks - 1:
                    answers[place, with_expert] = answered
        earlier, old_test = model, (test, true)
    ends = [head.posteriors(test).argmax(1) == true for head in without]
    return {
        "left_out": np.array([_by_task(right, true, increment, tasks).mean() for right in ends], np.float32),
        "accuracy": accuracy,
        "answers": answers,
        "labels": test_labels.astype(np.int16),
        "steps": np.array(steps, np.float32),
    }


def _by_task(right: NDArray[np.bool_], true: Labels, increment: int, tasks: int) -> NDArray[np.float64]:
    return np.array([100 * right[true // increment == task].mean() for task in range(tasks)])


STEPS = (
    "new_train",
    "new_test",
    "old_test",
    "ratio",
    "factor",
    "gate",
    "near",
    "old_stays",
    "old_affine",
    "old_gate",
)
"""Columns of ``steps``, one row for each task from the second. Mean lengths of the motions of class means:
new classes by training images and by test images, old ones by test images; ratio of the last two.
``factor``: the best single factor on ``affine``'s motion of old means. ``gate``: mean weight; ``near``:
share of weights that are 1. Accuracy on test images of old classes, this step's carry being none,
``affine`` or the gate, after ``affine`` in all earlier steps and before new classes enter."""


def step(
    heads: dict[str, Discriminant],
    before: Rows,
    after: Rows,
    labels: Labels,
    test_before: Rows,
    test: Rows,
    true: Labels,
    known: int,
) -> list[float]:
    """Carry the heads over a task, and return what moved how far, in the order of :data:`STEPS`."""
    new, new_after = _means(before, labels), _means(after, labels)
    motions = {name: fit(name, before, after, labels) for name in ("none", "shift", "affine", "auto")}
    tested_before, tested = _means(test_before, true), _means(test, true)
    old_motion = tested[:known] - tested_before[:known]
    before_step = heads["affine"].copy()
    told = motions["affine"](before_step.mean) - before_step.mean
    weights = gates(before_step.mean, new)

    for name, head in heads.items():
        inner = {"gate": "affine", "gate-shift": "shift", "affine-means": "affine"}.get(name, name)
        if name == inner:
            head.carry(motions[inner])
            continue
        moved = motions[inner](head.mean)
        if name.startswith("gate"):
            own = gates(head.mean, new)[:, None]
            moved = head.mean + own * (moved - head.mean)
        head.mean = moved

    gated = before_step.copy()
    gated.mean = before_step.mean + weights[:, None] * told
    old = true < known
    accuracies = [
        100 * (head.posteriors(test[old]).argmax(1) == true[old]).mean()
        for head in (before_step, heads["affine"], gated)
    ]
    new_test, old_test = _length(tested[known:] - tested_before[known:]), _length(old_motion)
    factor = float((old_motion * told).sum() / max(float((told * told).sum()), 1e-30))
    return [
        _length(new_after - new),
        new_test,
        old_test,
        new_test / max(old_test, 1e-30),
        factor,
        float(weights.mean()),
        float((weights == 1).mean()),
        *accuracies,
    ]


def _means(rows: Rows, labels: Labels) -> Rows:
    return np.stack([rows[labels == label].mean(0) for label in np.unique(labels)])


def _length(rows: Rows) -> float:
    return float(np.sqrt(np.square(rows).sum(1)).mean())


def measure(
    stream: str, order: int, method: str, size: int, data: Path, weights: Path, runs: Path, out: Path
) -> Path:
    """Train and evaluate a cell unless its result is there, and return the file.

    Raises:
        SystemExit: The numpy heads do not end where the run ended.
    """
    name = f"{stream}.{order}.{method}.{size}"
    file = out / f"{name}.npz"
    if file.exists():
        return file
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    images = Images(data / stream / str(order), facts)
    seconds: dict[str, float] = {}

    def timed(label: str, work: Any) -> Any:
        begin = time.perf_counter()
        done = work()
        seconds[label] = round(time.perf_counter() - begin, 1)
        return done

    def known() -> tuple[float, dict[str, Rows]]:
        bare_file = runs / f"{stream}.{order}.frozen.{size}.npz"
        if not bare_file.exists():
            run = runs / f"{stream}.{order}.frozen.{size}"
            record = train(run, command(stream, order, "frozen", size, data, weights, run))
            np.savez(bare_file, faa=record["metrics"]["faa"], **frozen(run, images, weights))
        stored = np.load(bare_file)
        return float(stored["faa"]), {split: stored[split] for split in ("train", "test")}

    raw_accuracy, bare = timed("frozen", known)
    run = runs / name
    record = timed("training", lambda: train(run, command(stream, order, method, size, data, weights, run)))
    found = timed("evaluation", lambda: evaluate(run, images, weights, bare))
    ends = found["accuracy"][:, :, -1].mean(-1)
    own = record["metrics"]["faa"]
    raw_right = found["answers"][VARIANTS.index("raw"), 0] == found["labels"]
    checks = {
        "affine": (float(ends[VARIANTS.index("affine"), 0]), own),
        "raw": (100 * float(raw_right.mean()), raw_accuracy),
    }
    for label, (offline, by_run) in checks.items():
        if abs(offline - by_run) > 0.01:
            raise SystemExit(f"{name}: {label} ends at {offline:.3f} in numpy and at {by_run:.3f} in the run")
    told = {
        "stream": stream,
        "order": order,
        "method": method,
        "size": size,
        "seed": order,
        "precision": record["precision"]["used"],
        "faa": own,
        "raw_accuracy": raw_accuracy,
        "seconds": seconds,
        "forwards": record["findings"].get("carry_forwards"),
        "lw2g": record["lw2g_version"],
        "config": record["config"]["baseline"],
    }
    out.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".tmp.npz")
    np.savez_compressed(partial, facts=np.array(json.dumps(told)), **found)
    partial.rename(file)
    return file


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cell that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stream", required=True)
    parser.add_argument("--order", type=int, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--size", type=int, required=True, help="side of an image in pixels")
    parser.add_argument("--data", type=Path, required=True, help="folder that lay_out.py wrote")
    parser.add_argument("--weights", type=Path, required=True, help="file of the backbone's weights")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished cells")
    file = measure(**vars(parser.parse_args(arguments)))
    print(summary(file), flush=True)


def summary(file: Path) -> str:
    """Return a cell's ends in one line."""
    cell = np.load(file)
    facts = json.loads(str(cell["facts"]))
    ends = cell["accuracy"][:, :, -1].mean(-1)
    shown = " ".join(
        f"{name} {alone:.1f}/{both:.1f}" for name, (alone, both) in zip(VARIANTS, ends, strict=True)
    )
    return f"{file.stem}: {shown} | {facts['seconds']}"


if __name__ == "__main__":
    sys.exit(main())
