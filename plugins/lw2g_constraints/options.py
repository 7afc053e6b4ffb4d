"""Options of the constraints. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, le

from lw2g.plugin import option

__all__ = ["CpkConfig", "FreezeConfig", "LgclConfig", "OrthogonalConfig", "PgpConfig"]

_ON = "update: after the optimizer step, exact; gradient: before it, from which Adam leaks"


@attrs.frozen(kw_only=True)
class OrthogonalConfig:
    """Options of ``orthogonal``."""

    on: Literal["update", "gradient"] = option("update", _ON, published="gradient")


@attrs.frozen(kw_only=True)
class CpkConfig:
    """Options of ``cpk``."""

    phi: float = option(
        0.5,
        "share kept of the component inside the pre-trained space; 1 switches the rule off",
        validator=and_(ge(0.0), le(1.0)),
    )
    on: Literal["update", "gradient"] = option("update", _ON, published="gradient")


@attrs.frozen(kw_only=True)
class PgpConfig:
    """Options of ``pgp``."""

    energy: float = option(
        0.5, "share of the energy that a space must reach", validator=and_(gt(0.0), le(1.0)), published=0.5
    )
    power: Literal[2, 4] = option(
        2,
        "power of the singular values that counts as energy",
        literal={4: "the released code squares the energies"},
    )
    rule: Literal["reach", "below"] = option(
        "reach",
        "rank of a new space: the least that reaches the energy, or one less; extensions reach it",
        literal={"below": "the released code's new spaces stop one direction short"},
    )
    on: Literal["update", "gradient"] = option("update", _ON, published="gradient")


@attrs.frozen(kw_only=True)
class FreezeConfig:
    """A constraint without options."""


_WITHOUT_TASKS = {"levels": ("class",), "task_weight": (0,)}


@attrs.frozen(kw_only=True)
class LgclConfig:
    """Options of ``lgcl``."""

    encoder: Literal["precomputed", "hf-clip", "hash"] = option(
        "precomputed",
        "where text vectors come from: a file, a CLIP model on this machine, or (tests) a hash",
        literal={"hash": "text vectors are random and mean nothing: for tests only"},
    )
    file: Path | None = option(
        None,
        "precomputed: file of text vectors (.safetensors or .npz)",
        only={"encoder": ("precomputed",)},
    )
    model: str = option(
        "openai/clip-vit-large-patch14",
        "hf-clip: folder of a CLIP model, or its name in the local cache; never downloaded",
        published="openai/clip-vit-large-patch14",
        only={"encoder": ("hf-clip",)},
    )
    names: Path | None = option(
        None, "JSON table from class names to words; empty: the benchmark's class names are used"
    )
    levels: Literal["task", "class", "both"] = option(
        "both", "task: guide prompt keys; class: guide features", published="both"
    )
    task_weight: float = option(
        0.3,
        "weight of the task loss (CIFAR-100: 0.323, ImageNet-R: 0.3)",
        validator=ge(0.0),
        unless={"levels": ("class",)},
    )
    class_weight: float = option(
        0.15,
        "weight of the class loss (CIFAR-100: 0.137, ImageNet-R: 0.7)",
        validator=ge(0.0),
        unless={"levels": ("task",)},
    )
    negatives: Literal["sampled", "mean"] = option(
        "sampled", "sampled: one negative per image; mean: all of them", published="sampled"
    )
    class_loss_first_task: bool = option(
        False,
        "whether features are guided in the first task already",
        published=False,
        unless={"levels": ("task",), "class_weight": (0,)},
    )
    task_text: Literal["sentence", "mean"] = option(
        "sentence",
        "what stands for a task: the sentence that names its classes, or the mean of their vectors",
        published="sentence",
        unless=_WITHOUT_TASKS,
    )
    overflow: Literal["mean", "truncate", "error"] = option(
        "mean",
        "for a sentence that is too long for the encoder: take the mean of its classes, cut it, or stop",
        unless={**_WITHOUT_TASKS, "task_text": ("mean",)},
    )
    set_text: Literal["current", "union"] = option(
        "current",
        "what a key shared by a set's tasks is pulled to: the current task's text, or the mean of all",
        unless=_WITHOUT_TASKS,
    )
    align: Literal["none", "orthogonal"] = option(
        "none",
        "orthogonal: turn text vectors of another width into the features' by a fixed orthogonal map",
        literal={"orthogonal": "text vectors pass through a fixed map, which the paper does not have"},
    )
