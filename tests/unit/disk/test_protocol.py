"""What a run was evaluated under, as facts; a benchmark declares the options of its training transform."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from lw2g.disk.protocol import _METRICS, digest_of, noted_facts
from lw2g.interfaces.metric import DEFINITIONS
from lw2g.interfaces.options import option
from lw2g.registry.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[3]


@attrs.frozen(kw_only=True)
class Undeclared:
    """A stranger's options, which say nothing of a transform."""

    zoom: float = option(0.5, "how far the training transform zooms")
    place: str = option("here", "where the images are", role="machine")


@attrs.frozen(kw_only=True)
class Declared:
    """The same, declared."""

    zoom: float = option(0.5, "how far the training transform zooms", role="protocol")
    place: str = option("here", "where the images are")


def training(options: Any, *, random: bool = True) -> dict[str, Any]:
    """Return what a stream of one image notes of its training transform under some options."""
    task = SimpleNamespace(index=0, test=OneImage())
    stream = SimpleNamespace(tasks=[task], class_map=SimpleNamespace(targets_at=lambda labels: labels))
    pair = SimpleNamespace(test=digest_of, train=digest_of, train_is_deterministic=not random)
    facts: dict[str, Any] = noted_facts(stream, pair, options)["train_transform"]  # type: ignore[arg-type]
    return facts


class OneImage:
    """The test images of a task."""

    labels = np.zeros(1, dtype=np.int64)
    ids = ("one",)

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("kind", [Declared, Undeclared])
def test_a_strangers_training_transform_is_part_of_the_protocol(kind: type[Any]) -> None:
    """Whatever its options are called: another value is another hash, and another machine is not."""
    assert training(kind(zoom=0.5)) == {"zoom": 0.5, "deterministic": False}
    assert digest_of(training(kind(zoom=0.7))) != digest_of(training(kind(zoom=0.5)))
    assert training(kind(place="there")) == training(kind())


def test_without_a_random_transform_no_undeclared_option_counts() -> None:
    """Training images are seen as test images are, whose transform the protocol has."""
    assert training(Undeclared(), random=False) == {"deterministic": True}


def test_the_protocol_of_first_party_benchmarks_is_what_it_was() -> None:
    """Every hash in the store rests on these six names, and on no other option of a benchmark."""
    six = {"train_transform", "train_scale", "train_interpolation", "jitter", "jitter_first", "flip"}
    found = {}
    catalogue = load_catalogue()
    for name in catalogue.names("benchmark"):
        kind = catalogue.get("benchmark", name).config
        declared = {field.name for field in attrs.fields(kind) if field.metadata.get("role") == "protocol"}
        found[name] = declared == six & attrs.fields_dict(kind).keys()
    assert found
    assert all(found.values())


def test_metrics_are_defined_as_in_stored_runs():
    """A definition in other words parts every new run from those of the store: they could share no table."""
    today = {name: digest_of(DEFINITIONS[name])[:16] for name in _METRICS}
    stored = sorted((ROOT / "experiments" / "store" / "protocols").rglob("*.json"))
    assert stored
    apart = [path.name for path in stored if json.loads(path.read_text())["facts"]["metrics"] != today]
    assert not apart
