"""Every way of routing on the same trained models: what retrieval costs, and what soft routing gives back.

    python experiments/routing/compare.py RUN... --images FOLDER... [--per-class 10] [--tests N] [--out FILE]

Nothing is trained again. Each run's model is asked for the features of test images under all of its sets; LDA
and ridge are solved from un-prompted features of the run's own training images (as the strategies of these
names do in a stream, to rounding); constants of a mix are fitted to images of the *last task alone* (as a run
does) that the run was not trained on: those of ``FOLDER/CLASS``, of which the run has used only some. Test
images choose nothing.

``--head ridge`` puts a head in closed form behind the same features: solved from those of all training
images, each under the set of its task as the run has it in the end. Where sets are shared that is more than
a stream could know, in which the features of old classes were taken before the set moved on: an upper bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.ridge import Ridge
from lw2g.config.settings import RoutingConfig
from lw2g.interfaces.calibration import Temperature, best_of_task
from lw2g.interfaces.context import task_of_class
from lw2g.lifecycle.run_opening import reopen
from lw2g.model.mixing import Mixer, owned_classes
from lw2g.model.predictor import Predictor
from lw2g.model.trained import TrainedModel
from lw2g.model.unlabelled import unlabelled
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_set import ImageSet
from lw2g.registry.catalogue import load_catalogue


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """What a model says of some images: features under every set, queries, true classes."""

    features: Tensor  # [N, S, F]
    queries: Tensor  # [N, dim], un-prompted
    own_queries: Tensor  # those of the run's retrieval, where it learns its query
    labels: Tensor  # [N]


@attrs.frozen(kw_only=True, eq=False)
class Opinion:
    """A retrieval's log probabilities of tasks ``[N, T]`` and of classes ``[N, C]``."""

    tasks: Tensor
    classes: Tensor


def opened(run: Path, task: int | None = None) -> TrainedModel:
    """Return the model of a run as it stood after a task, with its session as ``session``."""
    session = reopen(run, load_catalogue(), task)
    model = TrainedModel(session.parts, len(session.parts.pool.task_to_set))
    model.session = session
    return model


def asked(
    model: TrainedModel, images: ImageSet, rows: np.ndarray, which: np.ndarray, *, retrieve: bool
) -> Answers:
    """Ask for queries and for the features under some sets of each image, ``which``: ``[N, S]``."""
    session = model.session
    queries = own = images.queries(rows.tolist()).float().cpu()
    if retrieve and session.parts.retrieval is not None and session.parts.retrieval.learned_query:
        parts = chunks(rows.tolist(), model.batch_size)
        with session.parts.engine.autocast():
            own = torch.cat(
                [session.parts.retrieval.query(one).float().cpu() for one in images.batches(parts)]
            )
    features = torch.empty(len(rows), 0)
    if which.size:
        pairs, sets = np.tile(rows, which.shape[1]), which.T.flatten()
        predictor = Predictor.of(session.parts, model.task - 1)
        found = predictor.pair_features(images, pairs, sets, model.batch_size, _count)
        features = torch.cat([part.cpu() for _, part in found])
        features = features.unflatten(0, (which.shape[1], -1)).transpose(0, 1)
    return Answers(features=features, queries=queries, own_queries=own, labels=images.labels[rows])


def _count(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"  {done}/{total} forwards", flush=True)


def unused(model: TrainedModel, folders: Sequence[Path], per_class: int) -> tuple[list[Path], list[int]]:
    """Return images of the latest task that has some which the run has not seen, and their labels."""
    session = model.session
    for task in reversed(range(model.task)):
        seen = {
            Path(name).parts[-2:] for name in session.data.stream.tasks[task].train.ids
        }  # folder and file
        paths, labels = [], []
        for label in session.parts.infos[task].classes:
            every = [path for one in folders for path in sorted((one / model.classes[label]).glob("*"))]
            fresh = [path for path in every if path.parts[-2:] not in seen][:per_class]
            paths += fresh
            labels += [label] * len(fresh)
        if paths:
            return paths, labels
    raise SystemExit("all images below --images were used in training: give a folder with more")


@torch.no_grad()
def ask_files(model: TrainedModel, paths: list[Path], labels: list[int]) -> Answers:
    """Ask for queries and features of image files."""
    session = model.session
    queries: list[Tensor] = []
    own: list[Tensor] = []
    features: list[Tensor] = []
    for part in chunks(range(len(paths)), model.batch_size):
        images = torch.stack([model.transform(str(paths[place])) for place in part])
        batch = unlabelled(images, model.backbone, model.retrieval)
        with session.parts.engine.autocast():
            queries.append(batch.query.float())
            own.append(
                queries[-1]
                if session.parts.retrieval is None
                else session.parts.retrieval.query(batch).float()
            )
            rows = [
                session.parts.baseline.features(batch, session.parts.pool.force(one)).float()
                for one in session.parts.pool.ids
            ]
        features.append(torch.stack(rows, dim=1))
    return Answers(
        features=torch.cat(features),
        queries=torch.cat(queries),
        own_queries=torch.cat(own),
        labels=torch.tensor(labels),
    )


class Routing:
    """The final evaluation of one run under any routing."""

    def __init__(
        self, model: TrainedModel, tests: Answers, held: Answers, train: Answers, head: str = "own"
    ) -> None:
        session = model.session
        history = [session.parts.infos[index] for index in range(model.task)]
        self.of_class = task_of_class(history, torch.device("cpu"))
        self.owner = torch.tensor(session.parts.pool.task_to_set)
        self.sets, self.tasks = len(session.parts.pool), len(history)
        self.tests, self.held, self.train = tests, held, train
        seen = history[-1].seen
        score = session.parts.baseline.logits if head == "own" else self._closed_head(seen)
        with torch.no_grad():
            self.logits = {
                name: score(one.features.flatten(0, 1))[:, :seen]
                .reshape(len(one.labels), self.sets, -1)
                .double()
                for name, one in (("tests", tests), ("held", held))
            }
        self.opinions = {
            "lda": self._closed_form(Discriminant(train.queries.shape[1], seen)),
            "ridge": self._closed_form(Ridge(train.queries.shape[1], seen, 1000, 0)),
        }
        if session.parts.retrieval is not None and not session.parts.retrieval.control:
            self.opinions["published"] = self._own(session.parts.retrieval)

    def _closed_head(self, seen: int) -> Callable[[Tensor], Tensor]:
        """Return ridge regression on random features, as ``baseline.head = "ridge"`` has it by default."""
        features = self.train.features[:, 0]
        ridge = Ridge(features.shape[1], seen, 2000, 0)
        for task in range(self.tasks):
            own = self.of_class[self.train.labels] == task
            ridge.learn(features[own], self.train.labels[own], torch.Generator().manual_seed(task))
        return lambda rows: ridge.scores(rows, seen)

    def _closed_form(self, classifier: ClosedForm) -> dict[str, Opinion]:
        rows, labels = self.train.queries, self.train.labels
        held = torch.arange(len(labels)) % 5 == 4
        for task in range(self.tasks):
            own = ~held & (self.of_class[labels] == task)
            classifier.learn(rows[own], labels[own], torch.Generator().manual_seed(task))
        temperature = Temperature(1.0)
        scores = best_of_task(
            classifier.scores(rows[held], len(self.of_class)), self.of_class, range(self.tasks)
        )
        temperature.observe(scores, self.of_class[labels[held]])
        classifier.update(rows[held], labels[held])
        return {
            name: self._opinion(classifier.scores(one.queries, len(self.of_class)) / temperature.value)
            for name, one in (("tests", self.tests), ("held", self.held))
        }

    def _opinion(self, classes: Tensor) -> Opinion:
        tasks = best_of_task(classes, self.of_class, range(self.tasks))
        return Opinion(tasks=tasks.log_softmax(1), classes=classes.log_softmax(1))

    @torch.no_grad()
    def _own(self, retrieval: Any) -> dict[str, Opinion]:
        known, temperature, found = range(self.tasks), Temperature(1.0), {}
        for name, one in (("held", self.held), ("tests", self.tests)):
            scores = retrieval.scores(one.own_queries, known, self.of_class)
            if name == "held":
                temperature.observe(scores, self.of_class[one.labels])
            tasks = (scores.double() / temperature.value).log_softmax(1)
            classes = retrieval.class_scores(one.own_queries, len(self.of_class))
            classes = tasks[:, self.of_class] if classes is None else classes.double() / temperature.value
            found[name] = Opinion(tasks=tasks, classes=classes.log_softmax(1))
        return found

    def row(self, retrieval: str, config: RoutingConfig) -> dict[str, Any]:
        """Return FAA and the rest of one way of routing."""
        mixer, opinions = Mixer(config), self.opinions[retrieval]
        hard = config.mix == 1
        if config.held_back and not hard:
            mixer.fit(*self._answers(mixer, "held", opinions["held"]), self.held.labels)
        parts = self._answers(mixer, "tests", opinions["tests"])
        # hard routing hears the chosen set alone
        found = parts[0][:, 0] if hard else mixer.combine(*parts)
        tasks = opinions["tests"].tasks
        first = self.owner[tasks.argmax(1)]
        return {
            "retrieval": retrieval,
            "mix": config.mix,
            "combine": config.combine if not hard else "-",
            "constants": mixer.named_constants() if config.held_back and not hard else "plain",
            "passes": mixer.passes(self.sets),
            "faa": self._faa(found.argmax(1)),
            "pra": self._mean(first == self.owner[self._task()]),
            "task": self._mean(self.of_class[found.argmax(1)] == self._task()),
        }

    def _answers(self, mixer: Mixer, name: str, opinion: Opinion) -> tuple[Tensor, ...]:
        sets, log_sets = mixer.choose(opinion.tasks, self.owner, self.sets)
        logits = self.logits[name]
        chosen = logits[torch.arange(len(logits))[:, None], sets]
        return chosen, log_sets, owned_classes(sets, self.owner, self.of_class), opinion.classes

    def oracle(self, *, masked: bool = False) -> dict[str, Any]:
        """Return the row of a model that is told the task (and, masked, takes its classes alone)."""
        logits = self.logits["tests"]
        found = logits[torch.arange(len(logits)), self.owner[self._task()]]
        if masked:
            found = found.masked_fill(self.of_class != self._task()[:, None], float("-inf"))
        name = "told the task, its classes alone" if masked else "told the task"
        return {"retrieval": name, "mix": 1, "combine": "-", "passes": 1, "faa": self._faa(found.argmax(1))}

    def _task(self) -> Tensor:
        return self.of_class[self.tests.labels]

    def _faa(self, predicted: Tensor) -> float:
        return self._mean(predicted == self.tests.labels)

    def _mean(self, right: Tensor) -> float:
        shares = [right[self._task() == task].double().mean() for task in range(self.tasks)]
        return 100 * float(torch.stack(shares).mean())


def rows(routing: Routing) -> Iterator[dict[str, Any]]:
    """Yield the rows of the comparison."""
    yield routing.oracle()
    yield routing.oracle(masked=True)
    for retrieval in routing.opinions:
        yield routing.row(retrieval, RoutingConfig(mix=1))
        if routing.sets == 1:
            continue
        for mix in (3, "all"):
            yield routing.row(retrieval, RoutingConfig(mix=mix, held_back=0))
            yield routing.row(retrieval, RoutingConfig(mix=mix))
        yield routing.row(retrieval, RoutingConfig(mix="all", evidence=("mass", "entropy", "logsumexp")))
        hierarchical = RoutingConfig(
            mix="all", combine="hierarchical", evidence=("mass", "entropy", "logsumexp")
        )
        yield routing.row(retrieval, hierarchical)


def compare(
    run: Path, folders: Sequence[Path], per_class: int, tests: int | None, heads: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of one run."""
    model = opened(run)
    session = model.session
    count = sum(session.data.evaluator.sizes(model.task))
    step = 1 if tests is None else max(1, count // tests)
    print(f"{run}: {len(session.parts.pool)} sets, every {step}. of {count} test images", flush=True)
    parts = [task.train for task in session.data.stream.tasks[: model.task]]
    train = session.data.image_set(parts, train=False)
    own = np.repeat(session.parts.pool.task_to_set, [len(part) for part in parts])[:, None]
    places = np.arange(0, count, step)
    every = np.tile(np.asarray(session.parts.pool.ids), (len(places), 1))
    with torch.no_grad():
        answers = (
            asked(model, session.data.evaluator.images, places, every, retrieve=True),
            ask_files(model, *unused(model, folders, per_class)),
            asked(
                model, train, np.arange(len(train)), own if "ridge" in heads else own[:, :0], retrieve=False
            ),
        )
        return [
            {"run": run.name, "sets": len(session.parts.pool), "head": head, **row}
            for head in heads
            for row in rows(Routing(model, *answers, head))
        ]


def main() -> None:
    """Compare the runs, print a table, and keep it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument(
        "--images", nargs="+", type=Path, required=True, help="training images, the used ones among them"
    )
    parser.add_argument("--per-class", type=int, default=10, help="held-back images of each class (10)")
    parser.add_argument("--tests", type=int, help="about so many test images (all)")
    parser.add_argument("--head", nargs="+", choices=("own", "ridge"), default=["own"])
    parser.add_argument("--out", type=Path, default=Path("routing.json"))
    arguments = parser.parse_args()
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    for run in arguments.runs:
        if any(row["run"] == run.name for row in found):
            continue
        found += compare(run, arguments.images, arguments.per_class, arguments.tests, arguments.head)
        arguments.out.write_text(json.dumps(found, indent=1))
    print(
        "| run | sets | head | retrieval | mix | combine | constants | passes | FAA | PRA | task |\n|"
        + " --- |" * 11
    )
    for row in found:
        constants = row.get("constants", "-")
        told = constants if isinstance(constants, str) else ", ".join(f"{v:.2f}" for v in constants.values())
        how = [row[name] for name in ("run", "sets", "head", "retrieval", "mix", "combine")]
        scores = ["-" if row.get(name) is None else f"{row[name]:.1f}" for name in ("faa", "pra", "task")]
        print("| " + " | ".join(map(str, [*how, told, row["passes"], *scores])) + " |")


if __name__ == "__main__":
    main()
