"""The complete configuration of an experiment, and the defaults of what a user leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs.validators import ge, gt, le, matches_re, optional

from lw2g.interfaces.options import option

__all__ = [
    "DEFAULT_BACKBONE",
    "DEFAULT_BASELINE",
    "DEFAULT_BENCHMARK",
    "DEFAULT_FIXED_POLICY",
    "DEFAULT_POLICY",
    "TIMM_BACKBONE",
    "BackboneChoice",
    "BackboneSource",
    "Chosen",
    "ExperimentConfig",
    "GrowthConfig",
    "ModelConfig",
    "Resolved",
    "RoutingConfig",
    "RunConfig",
]

DEFAULT_BASELINE = "hide-prompt"
DEFAULT_BENCHMARK = "glyphs"
DEFAULT_BACKBONE = "micro"
DEFAULT_POLICY = "min"
DEFAULT_FIXED_POLICY = "always"
"""The policy of a baseline that does not grow."""
TIMM_BACKBONE = "timm"
"""The backbone component that takes any timm model name as its option ``model``."""


@attrs.frozen(kw_only=True)
class Chosen:
    """A component and its options.

    Attributes:
        name: The component's name.
        config: An instance of its config class.
    """

    name: str
    config: Any


@attrs.frozen(kw_only=True)
class BackboneSource:
    """What every backbone can be told beside its own options."""

    weights: Path | None = option(None, "weights file to load in place of the component's own source")
    image_size: int | None = option(
        None, "side of the input image in pixels; empty: the backbone's own", validator=optional(ge(1))
    )


@attrs.frozen(kw_only=True)
class BackboneChoice:
    """A backbone component, its options, and where its weights come from.

    Attributes:
        name: The component's name.
        config: An instance of its config class.
        weights: A weights file in place of the component's own source.
        image_size: Side of the input image in pixels, None for the backbone's own.
    """

    name: str
    config: Any
    weights: Path | None = None
    image_size: int | None = None


def _is_multiple_of_four(_instance: object, field: attrs.Attribute[int], value: int) -> None:
    """A multiple of 4."""
    if value % 4:
        raise ValueError(f"'{field.name}' must be a multiple of 4: {value}")


@attrs.frozen(kw_only=True)
class GrowthConfig:
    """How representation subspaces are built and how evidence is collected."""

    energy: float = option(
        0.95, "share of the energy that the space of a finished task must reach", validator=[gt(0), le(1)]
    )
    energy_pre: float | None = option(
        None,
        "the same for the pre-trained space of a new task; empty: as energy",
        validator=optional([gt(0), le(1)]),
    )
    energy_power: Literal[2, 4] = option(
        2,
        "energies are singular values to this power",
        published=2,
        literal={4: "the released code takes squares of eigenvalues"},
    )
    rule: Literal["reach", "below"] = option(
        "reach",
        "rank of a new space: the least that reaches the energy, or one short of it; extensions reach it",
        published="reach",
        literal={"below": "the released code's new spaces stop one direction short of the energy"},
    )
    heads: Literal["per-head", "joint"] = option(
        "per-head",
        "spaces of attention sites: direct sum of one space per head, or one space of the full width",
        published="joint",
        literal={"joint": "the paper's full-width spaces do not keep the logits of single heads"},
    )
    measures: tuple[str, ...] = option(
        (), "measures that are recorded beside those that the policy reads, such as ['energy', 'logme']"
    )
    evidence: Literal["averaged", "literal"] = option(
        "averaged",
        "hindrance over disjoint halves of the images and several draws of the head, or one draw over all",
        published="literal",
        literal={"literal": "one draw of the head decides, and S_pre knows the gradient's own images"},
    )
    draws: int = option(
        4, "draws of the new classes' head that measures of gradients are averaged over", validator=ge(2)
    )
    images: int = option(
        256, "images of a new task on which evidence is collected, balanced over classes", validator=ge(2)
    )
    groups: int = option(
        16,
        "groups of those images, one gradient each, from which errors come",
        validator=[ge(16), _is_multiple_of_four],
    )
    screen: int = option(
        0,
        "sets measured in full, chosen by the energy of the new task that their spaces capture; 0: all",
        validator=ge(0),
        published=0,
    )
    centre: bool = option(
        False, "whether spaces are centred for evidence (never for protection)", published=False
    )
    reduce: Literal["mean-cos", "mean-angle", "global"] = option(
        "mean-cos", "how the angles of rows and sites become one HFC"
    )
    protect: Literal["assigned", "visible"] = option(
        "assigned",
        "whose activations a finished task leaves in memory: its own set, or every set it can meet",
    )

    def __attrs_post_init__(self) -> None:
        if self.images < self.groups:
            raise ValueError(f"'images' must be at least 'groups': {self.images} < {self.groups}")


def _is_a_number_of_sets(_instance: object, field: attrs.Attribute[Any], value: int | str) -> None:
    """From 1."""
    if value != "all" and int(value) < 1:
        raise ValueError(f"'{field.name}' must be at least 1, or 'all': {value}")


@attrs.frozen(kw_only=True)
class RoutingConfig:
    """How many sets answer for a test image, and how their answers become one."""

    mix: int | Literal["all"] = option(
        1,
        "sets evaluated per test image: the retrieved one (1), so many most probable ones, or all of them",
        validator=_is_a_number_of_sets,
        published=1,
    )
    combine: Literal["mixture", "hierarchical"] = option(
        "mixture",
        "mixture: every set speaks of all seen classes; hierarchical: of its own tasks' classes alone",
    )
    evidence: tuple[Literal["mass", "entropy", "logsumexp"], ...] = option(
        (),
        "what a set's answer adds to its weight: log mass on its own classes, entropy over all, logsumexp",
    )
    held_back: int = option(
        20,
        "training images of each task, at most a fifth, that fit the constants of a mix instead of being "
        "trained on; 0: the posterior-weighted mixture as it is",
        validator=ge(0),
    )


@attrs.frozen(kw_only=True)
class RunConfig:
    """How an experiment is run; nothing here belongs to a method."""

    seed: int = option(42, "seed of everything random", validator=[ge(0), le(2**63 - 1)])
    device: str = option(
        "auto", "auto, cpu, mps, cuda or cuda:N", validator=matches_re(r"auto|cpu|mps|cuda(:\d+)?")
    )
    devices: int = option(
        1,
        "processes that work on the run together, each on a device of its own; see docs/devices.md",
        validator=ge(1),
    )
    precision: Literal["auto", "32-true", "bf16-mixed"] = option(
        "auto",
        "arithmetic of training and evaluation; auto: settled once when the run starts, bf16-mixed where a "
        "few steps are faster on this machine and safe (loss within 2 %, gradient within 10 % of float32's), "
        "32-true for small backbones; a run keeps what it began with",
    )
    deterministic: bool = option(
        False, "refuse kernels that give other bits from call to call (CUDA; slower); the CPU has none in use"
    )
    compile: bool = option(
        False,
        "compile the ViT's blocks for batches of the baseline's, the retrieval strategy's and evaluation's "
        "size: faster steps after minutes of compiling, other last bits (triton, or a C++ compiler on a CPU)",
    )
    evaluation_batch: int = option(32, "images per step of evaluation and statistics", validator=ge(1))
    speed: Literal["exact", "fast"] = option(
        "exact",
        "exact: training images are augmented one by one on the CPU, each with a torch seed; fast: "
        "on the device by the batch, with other draws and rounding, from images no larger than a test reads",
    )
    workers: int = option(0, "processes that decode images; 0: none", validator=ge(0))
    image_memory: int = option(
        1024,
        "memory in MiB for the images of the task being learned, and as much again for the test images; more "
        "are decoded anew in each pass",
        validator=ge(0),
    )
    protocol: Literal["auto", "official", "like-for-like"] = option(
        "auto",
        "whose backbone and benchmark options: official (the authors' own), like-for-like (the same for all "
        "methods) or auto (official where the authors' values are known)",
    )
    keep_checkpoints: int = option(2, "checkpoints of epochs that are kept", validator=ge(1))


@attrs.frozen(kw_only=True)
class ModelConfig:
    """What decides how a trained model answers, once it is trained.

    Attributes:
        baseline: How a parameter set adapts the backbone.
        retrieval: How a test sample finds its set; None where the baseline makes no hard choice.
        backbone: The frozen backbone.
        routing: How many sets answer for a test image.
        run: Seed, device and the like.
    """

    baseline: Chosen
    retrieval: Chosen | None
    backbone: BackboneChoice
    routing: RoutingConfig
    run: RunConfig


@attrs.frozen(kw_only=True)
class ExperimentConfig(ModelConfig):
    """Everything that decides the outcome of a run.

    Attributes:
        policy: When a set is added.
        constraints: How updates are bent; empty for none.
        benchmark: The task stream.
        growth: How evidence is collected and spaces are built.
        trackers: What receives the run's events, beside the run directory.
        evidence: What is measured before growth is decided: what the policy reads, and what else is recorded.
    """

    policy: Chosen
    constraints: tuple[Chosen, ...]
    benchmark: Chosen
    growth: GrowthConfig
    trackers: tuple[Chosen, ...] = ()
    evidence: tuple[Chosen, ...] = ()


@attrs.frozen(kw_only=True)
class Resolved:
    """A complete configuration and how it came about.

    Attributes:
        config: The configuration; its ``run.protocol`` is never ``"auto"``.
        preset: ``"official FAMILY"`` (the authors' values), ``"tuned FAMILY"`` (ours), or ``"general"`` where
            the baseline has none for the benchmark.
        preset_values: The preset's dotted keys and values.
        preset_differences: Where the configuration differs from the authors' values, one mapping
            ``{option, value, published, note}`` each; empty unless the preset is official.
        protocol_changes: What the user changed of what the protocol sets, one mapping
            ``{option, value, protocol}`` each.
        notes: What a user should know, one sentence each.
    """

    config: ExperimentConfig
    preset: str = "general"
    preset_values: Mapping[str, Any] = attrs.field(factory=dict)
    preset_differences: list[dict[str, Any]] = attrs.field(factory=list)
    protocol_changes: list[dict[str, Any]] = attrs.field(factory=list)
    notes: tuple[str, ...] = ()
