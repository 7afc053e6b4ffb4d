"""The embedded micro ViT: small weights that ship with the package, to learn and test with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from lw2g.plugin import (
    Backbone,
    DataError,
    PlainShape,
    load_weights,
    plain_model,
    shown,
    weight_files,
    weights_sha256,
)
from lw2g_backbones.known_backbones import MicroConfig

__all__ = ["FILE", "build_micro", "untrained_micro"]

FILE = "micro.safetensors"
"""Name of the weights file in this package."""
# a damaged file must not make a model that fills the memory
_LARGEST = {"img_size": 1024, "patch_size": 64, "embed_dim": 4096, "depth": 128, "num_heads": 64}
_WIDEST = 1e3


def build_micro(config: MicroConfig, weights: Path | None, image_size: int | None) -> Backbone:
    """Return the micro ViT, from the package or from a file that the training script has written.

    Raises:
        DataError: The file is missing or is not of that kind.
    """
    if weights is not None:
        # of weights in several files the first describes no model either, and is refused for that
        return _load(weight_files(weights)[0], "file", image_size, config)
    with _embedded() as path:
        return _load(path, "package", image_size, config)


def untrained_micro(config: MicroConfig, image_size: int | None) -> Backbone:
    """Return the architecture of the embedded file with random weights.

    Raises:
        DataError: The file is missing.
    """
    with _embedded() as path:
        described = _describe(path)
    model = plain_model("micro", _shape(described, image_size), seed=0)
    return Backbone.wrap(
        model,
        name="micro",
        mean=described["mean"],
        std=described["std"],
        pool=config.pool,
        layers=config.layers,
    )


@contextmanager
def _embedded() -> Iterator[Path]:
    with as_file(files("lw2g_backbones") / FILE) as path:
        if not path.is_file():
            raise DataError(
                f"the embedded weights {FILE!r} are missing from this installation", "reinstall lw2g"
            )
        yield path


def _shape(described: dict[str, Any], image_size: int | None) -> PlainShape:
    """Return the sizes of the network that a file of weights describes."""
    architecture = described["architecture"]
    return PlainShape(
        image_size=image_size or architecture["img_size"],
        patch_size=architecture["patch_size"],
        dim=architecture["embed_dim"],
        depth=architecture["depth"],
        heads=architecture["num_heads"],
    )


def _load(
    path: Path, source: Literal["file", "package"], image_size: int | None, config: MicroConfig
) -> Backbone:
    """Return the embedded network with the weights of a file."""
    described = _describe(path)
    model = plain_model("micro", _shape(described, image_size))
    load_weights(model, path)
    name = "micro"
    if source == "file":  # weights of one's own: results with them are not those of the embedded ones
        name = f"micro ({path.name})"
    return Backbone.wrap(
        model,
        name=name,
        timm_name="micro",
        source=source,
        sha256=weights_sha256(path),
        mean=described["mean"],
        std=described["std"],
        finetuned_on_1k=False,
        pool=config.pool,
        layers=config.layers,
    )


def _require_sense(described: dict[str, Any]) -> None:
    """Refuse a description that cannot be that of a micro ViT.

    Raises:
        ValueError: A value is missing or out of range.
    """
    architecture = described["architecture"]
    if not isinstance(architecture, dict) or architecture.keys() != _LARGEST.keys():
        raise ValueError(f"architecture: expected {', '.join(_LARGEST)}")
    for key, largest in _LARGEST.items():
        value = architecture[key]
        # type, not isinstance: true in JSON is an int to Python
        if type(value) is not int or not 1 <= value <= largest:
            raise ValueError(f"{key}: expected a number of 1 to {largest} but got {shown(value)}")
    if architecture["embed_dim"] % architecture["num_heads"]:
        raise ValueError("embed_dim: expected a multiple of num_heads")
    for key in ("mean", "std"):
        values = described[key]
        if not isinstance(values, list) or len(values) != 3:
            raise ValueError(f"{key}: expected three numbers but got {shown(values)}")
        for value in values:
            # not <= instead of >, so that NaN is refused, too
            if type(value) not in (int, float) or not abs(value) <= _WIDEST:
                raise ValueError(f"{key}: expected three numbers but got {shown(values)}")
        if key == "std" and min(values) <= 0:
            raise ValueError(f"{key}: expected positive numbers but got {shown(values)}")


def _describe(path: Path) -> dict[str, Any]:
    """Read architecture and input statistics from the metadata of the file."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        described = {key: json.loads(metadata[key]) for key in ("architecture", "mean", "std")}
        _require_sense(described)
        return described
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        # a file of other weights lacks the metadata, or has words of its own there
        why = "" if isinstance(error, KeyError | json.JSONDecodeError) else f" ({error})"
        raise DataError(
            f"{str(path)!r} is no micro ViT{why}",
            "use a file written by scripts/train_micro_vit.py, or name the architecture with --backbone",
        ) from error
