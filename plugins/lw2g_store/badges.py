"""Badges: how far somebody else than the submitter has confirmed a run, with the evidence."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy as np

from lw2g import __version__
from lw2g.config.sources import place_options
from lw2g.config.structure import NONE, misfit, structure
from lw2g.disk.protocol import noted_facts
from lw2g.disk.sealed import write_atomically
from lw2g.errors import DataError
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g_store.bounds import read_json
from lw2g_store.layout import BADGES
from lw2g_store.packs import Pack

if TYPE_CHECKING:
    from lw2g.vit.fingerprint import BackboneFingerprint

__all__ = ["Badge", "add_badge", "predicted_again", "read_badges"]

_AGREE = 99.9
"""Per cent of the predictions that must come again: other hardware decides a few close ones otherwise."""
_ANOTHER = 50
"""Per cent below which the model is rather one of another run than one that hardware has moved."""
_DEVIATIONS = 3
"""Standard errors by which new images may be answered worse than those submitted."""


@attrs.frozen(kw_only=True)
class Badge:
    """What was confirmed of a run.

    Attributes:
        badge: Which one.
        holds: Whether it was confirmed.
        text: The evidence in one line.
        lw2g_version: The version that looked.
        hardware: Where.
    """

    badge: Literal["recomputed", "re-predicted", "re-predicted, fresh"]
    holds: bool
    text: str
    lw2g_version: str = __version__
    hardware: str = attrs.field(factory=platform.machine)


@attrs.frozen(kw_only=True)
class _Badges:
    run: str
    badges: list[Badge]


def read_badges(path: Path) -> list[dict[str, Any]]:
    """Return the badges in a file.

    Raises:
        DataError: It is no such file.
    """
    content = read_json(path)
    # a stranger's words are cut where they would fill a screen
    if problem := misfit(content, _Badges):
        raise DataError(f"{path.name!r} is no file of badges: {problem[:200]}")
    if content["run"] != path.stem:
        raise DataError(f"{path.name!r} is of run {content['run'][:40]!r}")
    badges: list[dict[str, Any]] = content["badges"]
    return badges


def add_badge(store: Path, pack: Pack, badge: Badge) -> Path:
    """Write a badge that holds into a store, in place of an older one of its kind; return the file.

    Raises:
        DataError: It does not hold.
    """
    if not badge.holds:
        raise DataError(f"no badge {badge.badge!r}: {badge.text}")
    run = pack.record["sha256"][:12]  # as a store calls a run
    path = store / BADGES / f"{run}.json"
    badges: list[dict[str, Any]] = []
    if path.exists():
        # a run has at most one badge of a kind, and the last look at it counts
        badges = [other for other in read_badges(path) if other["badge"] != badge.badge]
    badges.append(attrs.asdict(badge))
    path.parent.mkdir(exist_ok=True)
    content = {"run": run, "badges": badges}
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return path


def predicted_again(
    pack: Pack, model: Path, *, data: Path | None, fresh: int | None, device: str
) -> list[Badge]:
    """Return whether an exported model makes a run's predictions, image by image in random order.

    Args:
        pack: The run.
        model: The export.
        data: The root of the data; None for benchmarks that draw their images.
        fresh: Seed of further test images, drawn after the submission; None for none.
        device: Where the model computes.

    Raises:
        DataError: Model, protocol and data do not belong together, or the benchmark draws no images.
    """
    from lw2g.model.saved import open_model

    catalogue = load_catalogue()
    # one image at a time: a model that peeks at the others of a batch gains nothing by it
    trained = open_model(model, catalogue, device=device, batch_size=1)
    if trained.backbone.fingerprint.sha256 != pack.record["backbone"]["sha256"]:
        raise DataError("the model is on another backbone than the run")
    component, config = _benchmark_of(pack, catalogue, data)
    stream = _stream_of_the_protocol(pack, component.build(config), config, trained.backbone.fingerprint)
    # the order cannot be known before the record is sealed; eight digits are 32 bits
    seed = int(pack.record["sha256"][:8], 16)
    last = pack.evaluations[-1]
    again, _ = _answers(trained, stream, seed)
    same = 100 * float(np.mean(again == last["predicted"]))
    text = f"{same:.2f} % of {len(again)} predictions, one by one in random order, on {device}"
    if same < _AGREE:
        theirs, own = pack.record["config"]["baseline"]["name"], trained.parts.config.baseline.name
        if own != theirs:
            text += f"; the model is of another run: its baseline is {own!r}, and that of the pack {theirs!r}"
        elif same < _ANOTHER:
            text += "; so few agree that the model may be of another run"
    badges = [Badge(badge="re-predicted", holds=same >= _AGREE, text=text)]
    if fresh is not None and badges[0].holds:  # another model would say nothing about this run
        if component.fresh_stream is None:
            raise DataError(f"benchmark {component.name!r} draws no images", "leave out --fresh")
        predicted, true = _answers(trained, component.fresh_stream(config, fresh), seed)
        before = 100 * float(np.mean(last["predicted"] == last["true"]))
        accuracy = 100 * float(np.mean(predicted == true))
        text = f"{accuracy:.2f} % of {len(true)} new images (seed {fresh}), {before:.2f} % of those submitted"
        holds = before - accuracy <= _DEVIATIONS * _standard_error(before, len(true))
        badges.append(Badge(badge="re-predicted, fresh", holds=holds, text=text))
    return badges


def _benchmark_of(pack: Pack, catalogue: Catalogue, data: Path | None) -> tuple[Any, Any]:
    """Return the component of a run's benchmark, and its options with the root of the data on this machine.

    Raises:
        DataError: The record's options fit no such benchmark.
    """
    component = catalogue.get("benchmark", pack.record["config"]["benchmark"]["name"])
    options: dict[str, Any] = {}
    for key, value in pack.record["config"]["benchmark"].items():
        if key != "name":
            # JSON has null, TOML has not: an option is spelt as a configuration spells it
            options[key] = NONE if value is None else value
    places = place_options(component.config)
    if data is not None and places:
        options[places[0]] = str(data)
    config, problems = structure(component.config, options)
    if config is None:
        raise DataError(f"benchmark {component.name!r}: {problems[0][0]}: {problems[0][1]}")
    return component, config


def _stream_of_the_protocol(pack: Pack, benchmark: Any, config: Any, backbone: BackboneFingerprint) -> Any:
    """Return a benchmark's stream, which must be that of a run.

    Raises:
        DataError: The data are not those of the protocol.
    """
    from lw2g.runtime.returned import stream_of, transforms_of

    name = pack.record["config"]["benchmark"]["name"]
    stream = stream_of(benchmark, name)
    transforms = transforms_of(benchmark, name, backbone)
    # through JSON, because the record's facts came from there: tuples are lists in it
    facts = json.loads(json.dumps(noted_facts(stream, transforms, config)))
    fits = stream.fingerprint == pack.record["fingerprints"]["benchmark"]
    if not fits or facts != pack.record["protocol_facts"]:
        raise DataError(
            "the data are not those of the run's protocol", "give the root of its data with --data"
        )
    return stream


def _standard_error(accuracy: float, count: int) -> float:
    """Return the standard error, in points, of the difference of two accuracies near one in percent.

    At least one point is taken for right and for wrong: at 100 % the binomial error would be 0, and one
    wrong image would refuse the badge.
    """
    right = max(accuracy, 1)
    wrong = max(100 - accuracy, 1)
    return float(100 * (2 * right / 100 * wrong / 100 / count) ** 0.5)


def _answers(model: Any, stream: Any, seed: int) -> tuple[Any, Any]:
    """Return predicted and true class of each test image, in the order of the stream."""
    images: list[tuple[Any, int]] = []
    for task in stream.tasks:
        images += [(task.test.source, int(index)) for index in task.test.indices]
    true = np.concatenate([stream.class_map.targets_at(task.test.labels) for task in stream.tasks])
    predicted = np.full(len(images), -1)
    # in a drawn order: a model that counts its calls could know the labels by their order
    for place in np.random.default_rng(seed).permutation(len(images)):
        source, index = images[place]
        predicted[place] = model.predict(source.image(index))[0]["class_index"]
    return predicted, true
