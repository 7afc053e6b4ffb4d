"""Options of the baselines that never grow. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import ge, gt, le, optional

from lw2g.plugin import (
    HeadOptions,
    PrefixOptions,
    RandomFeatureOptions,
    SteppingOptions,
    blocks_option,
    option,
)

__all__ = [
    "AdapterOptions",
    "FirstTaskOptions",
    "JointConfig",
    "NoPromptConfig",
    "OnePromptConfig",
    "RanPacConfig",
    "SimpleCILConfig",
    "SsiatConfig",
    "TokenOptions",
    "VptNspConfig",
]


# without slots, so that a config class can derive from several of them
@attrs.frozen(kw_only=True, slots=False)
class FirstTaskOptions:
    """How a set is learned on the first task alone."""

    epochs: int = option(20, "passes over the first task's training images", validator=ge(0))
    batch_size: int = option(48, "images per step", validator=ge(1), role="batch")
    lr: float = option(0.01, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    weight_decay: float = option(5e-4, "L2 coefficient, on everything that is trained", validator=ge(0))


@attrs.frozen(kw_only=True, slots=False)
class TokenOptions(FirstTaskOptions):
    """Options of ``aper-vpt-deep``: the set is prompt tokens."""

    length: int = option(5, "prompt tokens per block", validator=ge(1))


@attrs.frozen(kw_only=True, slots=False)
class AdapterOptions(FirstTaskOptions):
    """Options of ``aper-adapter``: the set is adapters."""

    bottleneck: int = option(64, "inner width of an adapter", validator=ge(1), published=64)


@attrs.frozen(kw_only=True)
class RanPacConfig(AdapterOptions, TokenOptions):
    """Options of ``ranpac``."""

    adapt: Literal["adapter", "vpt-deep", "none"] = option(
        "adapter", "what is learned on the first task: adapters, prompt tokens, or nothing"
    )
    features: int = option(
        1000,
        "width M of the random projection, 0 for none; M x M numbers are kept (10000: 0.8 GB, 4 to solve)",
        validator=ge(0),
        published=10_000,
    )
    penalty: Literal["task", "running"] = option(
        "task",
        "held-out error that chooses the ridge parameter: the last task's, or summed over all so far",
        published="task",
    )

    def unread(self) -> dict[str, str]:
        """Return the options that nothing reads under this ``adapt``, each with what to say of it."""
        if self.adapt == "none":
            names = [*attrs.fields_dict(AdapterOptions), "length"]
            return dict.fromkeys(names, "is not read: adapt=none trains nothing")
        other = {"adapter": "length", "vpt-deep": "bottleneck"}[self.adapt]
        return {other: f"is not read: adapt={self.adapt} has none"}


@attrs.frozen(kw_only=True)
class SimpleCILConfig(RandomFeatureOptions):
    """Options of ``simple-cil``: what reads the frozen features."""

    head: str = option(
        "cosine",
        "what predicts from frozen features: the nearest class mean, or another head in closed form",
        published="cosine",
        names="head",
    )


@attrs.frozen(kw_only=True)
class SsiatConfig(HeadOptions):
    """Options of ``ssiat``; defaults are the authors', the same on CIFAR-100, ImageNet-R and CUB-200."""

    bottleneck: int = option(64, "inner width of an adapter", validator=ge(1), published=64)
    first_epochs: int = option(20, "passes over the first task's training images", validator=ge(0))
    epochs: int = option(10, "passes over those of a later task", validator=ge(0))
    batch_size: int = option(48, "images per step", validator=ge(1), published=48, role="batch")
    lr: float = option(0.01, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    weight_decay: float = option(
        5e-4, "L2 coefficient on everything that is trained, in training and alignment", validator=ge(0)
    )
    scale: float = option(20.0, "factor on the cosines", validator=gt(0), published=20.0)
    margin: float = option(
        0.0, "what the cosine of the true class must exceed the others by", validator=ge(0)
    )
    align_epochs: int = option(
        5,
        "epochs of alignment, of a step per seen class; 0: none",
        validator=ge(0),
        published=5,
        only={"head": ("linear",)},
    )
    head_carry: str = option(
        "shift",
        "how statistics of old classes follow when a task moves their features (published: a kernel of "
        "constant width, between images of two draws)",
        names="carry",
    )


@attrs.frozen(kw_only=True)
class NoPromptConfig:
    """Options of ``no-prompt``: how prompt methods train their heads."""

    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(24, "images per step", validator=ge(1), role="batch")
    lr: float = option(
        0.03, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(1.0, "bound of the gradient norm", validator=optional(gt(0)))


@attrs.frozen(kw_only=True)
class JointConfig(PrefixOptions):
    """Options of ``joint``."""

    epochs: int = option(20, "passes over the training images of all tasks", validator=ge(0))


_WITHOUT_OUTLIERS = {"outliers": ("none",)}


@attrs.frozen(kw_only=True)
class OnePromptConfig(SteppingOptions):
    """Options of ``one-prompt``."""

    shallow_blocks: tuple[int, ...] = blocks_option((0, 1), "blocks that get the short prefix", empty=True)
    shallow_length: int = option(5, "prefix tokens per shallow block", validator=ge(1), published=5)
    deep_blocks: tuple[int, ...] = blocks_option((2, 3, 4), "blocks that get the long prefix", empty=True)
    deep_length: int = option(20, "prefix tokens per deep block", validator=ge(1), published=20)
    epochs: int = option(
        50, "passes over a task's training images, those of the head alone included", validator=ge(0)
    )
    batch_size: int = option(128, "images per step", validator=ge(1), role="batch")
    lr: float = option(1e-3, "learning rate of Adam", validator=gt(0))
    outliers: Literal["none", "paper", "shipped"] = option(
        "none",
        "virtual outliers that the head is trained against (OVOR): around features at the boundary, "
        "or as released",
        literal={
            "shipped": "outliers are noise around the origin, one in 50 distinct, none near the features"
        },
    )
    outlier_share: float = option(
        0.2,
        "share of the epochs that trains the head alone, if there are outliers",
        validator=[ge(0), le(1)],
        published=0.2,
        unless=_WITHOUT_OUTLIERS,
    )
    outlier_weight: float = option(
        0.1, "weight of the outlier loss", validator=ge(0), published=0.1, unless=_WITHOUT_OUTLIERS
    )
    known_energy: float = option(
        -15.0,
        "energy that real features should stay below",
        validator=le(0),
        published=-15.0,
        unless=_WITHOUT_OUTLIERS,
    )
    outlier_energy: float = option(
        -3.0,
        "energy that outliers should stay above",
        validator=le(0),
        published=-3.0,
        unless=_WITHOUT_OUTLIERS,
    )

    @property
    def head_epochs(self) -> int:
        """Epochs at the end of a task that train the head alone."""
        if self.outliers == "none":
            return 0
        return round(self.outlier_share * self.epochs)


@attrs.frozen(kw_only=True)
class VptNspConfig(HeadOptions):
    """Options of ``vpt-nsp2``; defaults are the authors' for CIFAR-100 in ten tasks."""

    length: int = option(4, "prompt tokens per block", validator=ge(3), published=4)
    epochs: int = option(
        100, "passes over a task's training images; the release calls ten of them one epoch", validator=ge(0)
    )
    batch_size: int = option(256, "images per step", validator=ge(1), published=256, role="batch")
    lr: float = option(0.01, "learning rate of Adam", validator=gt(0), published=0.01)
    weight_decay: float = option(5e-5, "L2 coefficient, on everything that is trained", validator=ge(0))
    temperature: float = option(28.0, "what logits are divided by in training", validator=gt(0))
    projected: float = option(
        0.97,
        "share of an update that is projected off what old tasks' attention meets; the rest is not",
        validator=[ge(0), le(1)],
    )
    projector: Literal["official", "exact"] = option(
        "official",
        "official: projections over their Frobenius norm, as released, beside which the rest weighs "
        "as much; exact: projections",
        published="official",
    )
