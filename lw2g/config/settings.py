"""The complete configuration of an experiment, and its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs.validators import ge, gt, le, optional

from lw2g.errors import ConfigError, nearest, shown
from lw2g.interfaces.component import Kind
from lw2g.interfaces.options import option
from lw2g.registry.kinds import SECTIONS

__all__ = [
    "EVIDENCE_OPTIONS",
    "FORMER_RUN_OPTIONS",
    "MODEL_KINDS",
    "OWN_SECTIONS",
    "RUN_OPTIONS",
    "BackboneChoice",
    "BackboneSource",
    "Chosen",
    "ExperimentConfig",
    "GrowthConfig",
    "ModelConfig",
    "Resolved",
    "RoutingConfig",
    "RowTap",
    "RowTokens",
    "RunConfig",
    "is_evaluated",
    "require_device",
]


RowTap = Literal["site", "block-input", "after-norm", "queries", "block-output", "last-queries"]
"""Which activations are the rows of a space."""

RowTokens = Literal["all", "one", "class", "mean"]
"""Which rows an image has in a space."""


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
    """The options that every backbone has in addition to its own."""

    weights: Path | None = option(
        None, "file or folder of weights that replaces the component's own source", role="fingerprint"
    )
    image_size: int | None = option(
        None, "side of the input image in pixels; empty: the backbone's own", validator=optional(ge(1))
    )


@attrs.frozen(kw_only=True)
class BackboneChoice:
    """A backbone component, its options, and where its weights come from.

    Attributes:
        name: The component's name.
        config: An instance of its config class.
        weights: A weights file that replaces the component's own source.
        image_size: Side of the input image in pixels, None for the backbone's own.
    """

    name: str
    config: Any
    weights: Path | None = None
    image_size: int | None = None


def _is_a_share(_instance: object, field: attrs.Attribute[Any], value: float | str) -> None:
    """From 0 to 1, or 'average'."""
    if value != "average" and not 0 <= float(value) <= 1:  # NaN is not between them, either
        raise ValueError(f"'{field.name}' must be a share from 0 to 1, or 'average': {value}")


@attrs.frozen(kw_only=True)
class GrowthConfig:
    """How representation subspaces are built and how evidence is collected."""

    energy: float = option(
        0.95, "share of the energy that the space of a finished task must reach", validator=[gt(0), le(1)]
    )
    energy_pre: float | None = option(
        None,
        "the same for the pre-trained space of a new task; empty: equal to energy",
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
        "rank of a new space: the smallest that reaches the energy, or one less; extensions always reach it",
        published="reach",
        literal={"below": "the released code's new spaces stop one direction short of the energy"},
    )
    heads: Literal["per-head", "joint"] = option(
        "per-head",
        "spaces of attention sites: direct sum of one space per head, or one space of the full width",
        published="joint",
        literal={"joint": "the paper's full-width spaces do not keep the logits of single heads"},
    )
    tap: RowTap = option(
        "site",
        "which activations span the space of a finished task: those that the parameter multiplies, the "
        "block's input, the same after its norm, the queries, the block's output, or the queries of the last "
        "block",
        literal=dict.fromkeys(
            ("block-input", "after-norm", "block-output", "last-queries"),
            "the paper says 'the input of layer l'; a constraint off these spaces keeps no old logits",
        ),
    )
    tap_pre: RowTap | None = option(
        None, "the same for the pre-trained space of a new task; empty: equal to tap"
    )
    tokens: RowTokens = option(
        "all",
        "rows of an image in the space of a finished task: all its tokens, one drawn by the seed, the class "
        "token, or the mean of all",
    )
    tokens_pre: RowTokens | None = option(
        None, "the same for the pre-trained space of a new task; empty: equal to tokens"
    )
    measures: tuple[str, ...] = option(
        (), "measures recorded beside those that the policy reads, such as ['energy', 'logme']"
    )
    evidence: Literal["averaged", "literal"] = option(
        "averaged",
        "hindrance over disjoint halves of the images and several draws of the head, or one draw over all",
        published="literal",
        literal={"literal": "one draw of the head decides, and S_pre contains the gradient's own images"},
    )
    draws: int = option(
        4, "draws of the new classes' head over which gradient measures are averaged", validator=ge(2)
    )
    images: int = option(
        256, "images of a new task on which evidence is collected, balanced over classes", validator=ge(16)
    )
    space_images: int | None = option(
        None,
        "how many of these images, balanced over classes, give the space of the task once it is finished; "
        "empty: all (the paper names no number)",
        validator=optional(ge(1)),
    )
    screen: int = option(
        0,
        "sets measured in full: those whose spaces capture most energy of the new task; 0: all",
        validator=ge(0),
        published=0,
    )
    centre: bool = option(
        False, "whether spaces are centred for evidence (never for protection)", published=False
    )
    centre_old: bool = option(
        False,
        "whether the space of a finished task is centred: it then lacks the mean activation, which a "
        "constraint would have to keep",
        published=False,
    )
    reduce: Literal["mean-cos", "mean-angle", "global"] = option(
        "mean-cos", "how the angles of rows and sites are reduced to one HFC"
    )
    protect: Literal["assigned", "visible"] = option(
        "assigned",
        "sets whose memory keeps activations of a finished task: its own set, or every set it can meet",
    )
    merge: float | Literal["average"] = option(
        1.0,
        "share of what a task trains that a reused set takes up: 1: all of it, 0: none, average: one part in "
        "the number of its tasks; below 1 a head in closed form must predict",
        validator=_is_a_share,
        published=1.0,
    )


EVIDENCE_OPTIONS = ("evidence", "draws", "screen", "centre", "reduce")
"""Those of ``[growth]`` that measures alone read; constraints read others of it, too."""


def _is_a_number_of_sets(_instance: object, field: attrs.Attribute[Any], value: int | str) -> None:
    """From 1."""
    if value != "all" and int(value) < 1:
        raise ValueError(f"'{field.name}' must be at least 1, or 'all': {value}")


@attrs.frozen(kw_only=True)
class RoutingConfig:
    """How many sets predict a test image, whether an expert predicts too, and how these are combined."""

    mix: int | Literal["all"] = option(
        1,
        "sets evaluated per test image: the retrieved one (1), the most probable ones, or all of them",
        validator=_is_a_number_of_sets,
        published=1,
    )
    combine: Literal["mixture", "hierarchical"] = option(
        "mixture",
        "mixture: every set predicts all seen classes; hierarchical: only its own tasks' classes",
        unless={"mix": (1,)},
    )
    evidence: tuple[Literal["mass", "entropy", "logsumexp"], ...] = option(
        (),
        "terms of a set's prediction in its weight: log mass on its own classes, entropy over all, logsumexp",
        unless={"mix": (1,)},
    )
    held_back: int = option(
        20,
        "training images of each task, at most a fifth, that fit the constants of a mix, or the temperature "
        "of a head beside an expert, instead of being trained on; 0: the posterior-weighted mixture as it is",
        validator=ge(0),
    )
    expert: Literal["none", "frozen", "auto"] = option(
        "none",
        "what answers beside the baseline's head: frozen is linear discriminant analysis on un-prompted "
        "features, whose posterior is multiplied with the head's; auto is the head auto on them, and both "
        "get a temperature",
        published="none",
    )


def _is_a_pace(_instance: object, field: attrs.Attribute[Any], value: int | str) -> None:
    """From 1, 'every task' or 'last'."""
    if value not in ("every task", "last") and int(value) < 1:
        raise ValueError(f"'{field.name}' must be at least 1, or 'every task' or 'last': {value}")


def _is_a_number_of_workers(_instance: object, field: attrs.Attribute[Any], value: int | str) -> None:
    """From 0."""
    if value != "auto" and int(value) < 0:
        raise ValueError(f"'{field.name}' must be at least 0, or 'auto': {value}")


def is_evaluated(task: int, last: int, evaluate: int | str) -> bool:
    """Return whether an evaluation follows a task.

    Args:
        task: The task, from 0.
        last: The last one that the run learns.
        evaluate: The option ``run.evaluate``.
    """
    if task == last or evaluate == "every task":
        return True
    return evaluate != "last" and (task + 1) % int(evaluate) == 0


_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")
_DEVICES = "auto, cpu, mps, cuda or cuda:N"


def _meant(device: str) -> str:
    """Return which device may be meant by another name, such as gpu or 0."""
    if device.isdecimal():
        return f" (did you mean 'cuda:{device}'?)"
    return nearest(device.lower().replace("gpu", "cuda"), ("auto", "cpu", "mps", "cuda"))


"""Devices, as torch spells them."""


def require_device(name: str) -> None:
    """Refuse what is no name of a device, whether there is such a device or not.

    Raises:
        ConfigError: It is none.
    """
    if not _DEVICE.fullmatch(name):
        raise ConfigError(f"device: no device is called {shown(name)}{_meant(name)}", f"name {_DEVICES}")


def _is_a_device(_instance: object, _field: attrs.Attribute[Any], value: str) -> None:
    """As torch spells it."""
    if not _DEVICE.fullmatch(value):
        raise ValueError(f"must be {_DEVICES}: {shown(value)}{_meant(value)}")


@attrs.frozen(kw_only=True)
class RunConfig:
    """How an experiment is run; none of this belongs to a method."""

    seed: int = option(42, "seed of everything random", validator=[ge(0), le(2**63 - 1)], role="draw")
    device: str = option(
        "auto",
        "where it runs: cpu, mps, cuda, cuda:N, or auto (a GPU where there is one, and the CPU for a small "
        "network)",
        validator=_is_a_device,
        role="machine",
    )
    devices: int = option(
        1,
        "processes of the run, each on its own device; see docs/devices.md",
        validator=ge(1),
    )
    precision: Literal["auto", "32-true", "bf16-mixed"] = option(
        "auto",
        "arithmetic of training and evaluation; auto: settled once, when a run or the first cell of a sweep "
        "starts: bf16-mixed where the processor has amx_bf16, is AMD's with avx512_bf16, or is a GPU with "
        "bf16 units, and one step is safe in it (loss within 5 %, the median image's gradient within 25 % of "
        "float32's); else, and for tiny backbones, 32-true",
    )
    deterministic: bool = option(
        False, "refuse kernels whose results vary from call to call (CUDA; slower); lw2g uses none on the CPU"
    )
    compile: bool = option(
        False,
        "compile the ViT's blocks for the batch sizes of baseline, retrieval strategy and evaluation: faster "
        "steps after minutes of compiling, other last bits (needs triton, or a C++ compiler on a CPU); "
        "blocks with low-rank updates or adapters train uncompiled",
    )
    evaluate: int | Literal["every task", "last"] = option(
        "every task",
        "when the test images of all seen tasks are predicted: after every task, after each k-th (a number) "
        "and the last, or after the last alone; what is not measured is null in the record",
        validator=_is_a_pace,
    )
    evaluation_batch: int = option(
        32, "images per step of evaluation and statistics", validator=ge(1), role="machine"
    )
    speed: Literal["exact", "fast"] = option(
        "exact",
        "exact: training images are augmented one by one on the CPU, each with a torch seed; fast: in "
        "batches on the device, with other draws and rounding, from images no larger than test images, and "
        "oneDNN takes float32 products of the backbone on a CPU where it is known to be faster",
    )
    queries: Literal["augmented", "still"] = option(
        "augmented",
        "what un-prompted features of training images are of: each augmented image, anew in each epoch, or "
        "the image under the test transform, once a task (faster; retrieval learns without augmentation)",
        published="augmented",
    )
    next_domain: bool = option(
        False,
        "also test each task before it is learned, where all its classes are known from other domains; the "
        "record notes it beside chance (no forward transfer: that subtracts a random model's accuracy)",
        role="shown",
    )
    probabilities: bool = option(
        False,
        "also keep how probable each prediction is; the record then has the calibration error (ECE) of a "
        "temperature that is fitted to training images, each left out of the sums of a head in closed form",
        role="shown",
    )
    workers: int | Literal["auto"] = option(
        "auto",
        "processes that decode and augment images; 0: none; auto: up to 4 beside a GPU, which one process "
        "cannot feed, and none elsewhere (the images are the same bits)",
        validator=_is_a_number_of_workers,
        role="machine",
    )
    image_memory: int = option(
        1024,
        "memory in MiB for the images of the current task, and as much again for test images; images beyond "
        "it are decoded again in each pass",
        validator=ge(0),
        role="machine",
    )
    image_disk: int = option(
        0,
        "disk in MiB, in the run's directory while it runs, for transformed test images that do not fit into "
        "image_memory",
        validator=ge(0),
        role="machine",
    )
    protocol: Literal["auto", "official", "like-for-like"] = option(
        "auto",
        "backbone and benchmark options: official (the authors' own), like-for-like (the same for all "
        "methods) or auto (official if the authors' values are known)",
    )


RUN_OPTIONS = ("protocol", "seed", "device", "devices", "precision")
"""Options of the section ``run`` that may stand without it: in a file, and as arguments.

A choice of what is often written, not of what options are.
"""

FORMER_RUN_OPTIONS = frozenset({"graph"})
"""Options of ``[run]`` that are gone and changed no number: stored runs and models are read without them."""

OWN_SECTIONS: Mapping[str, type[Any]] = {
    "growth": GrowthConfig,
    "routing": RoutingConfig,
    "run": RunConfig,
}
"""The sections of an experiment whose options are lw2g's own, not a component's."""


@attrs.frozen(kw_only=True)
class ModelConfig:
    """The part of a configuration that determines a trained model's predictions.

    Attributes:
        baseline: How a parameter set adapts the backbone.
        retrieval: How a test sample finds its set; None if the baseline makes no hard choice.
        backbone: The frozen backbone.
        routing: How many sets predict a test image.
        run: Seed, device and the like.
        head: The heads that options of the baseline name.
        carry: The carries likewise.
    """

    baseline: Chosen
    retrieval: Chosen | None
    backbone: BackboneChoice
    routing: RoutingConfig
    run: RunConfig
    head: tuple[Chosen, ...] = ()
    carry: tuple[Chosen, ...] = ()

    def chosen(self) -> Iterator[tuple[Kind, Chosen | BackboneChoice]]:
        """Yield every component in use with its kind, kind by kind."""
        for section, record in SECTIONS.items():
            choice = getattr(self, section, None)
            components = choice if record.several else (choice,)
            for component in components or ():
                if component is not None:
                    yield record.kind, component


MODEL_KINDS: tuple[Kind, ...] = tuple(
    record.kind for section, record in SECTIONS.items() if section in attrs.fields_dict(ModelConfig)
)
"""The kinds of components that a model is made of."""


@attrs.frozen(kw_only=True)
class ExperimentConfig(ModelConfig):
    """Everything that determines the outcome of a run.

    Attributes:
        policy: When a set is added.
        constraints: How updates are constrained; empty for none.
        benchmark: The task stream.
        growth: How evidence is collected and spaces are built.
        trackers: Receivers of the run's events, in addition to the run directory.
        evidence: The measures before a decision: those that the policy reads, and those only recorded.
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
        preset: ``"official FAMILY"`` (the authors' values), ``"tuned FAMILY"`` (ours), or ``"general"`` if
            the baseline has none for the benchmark.
        preset_values: The preset's dotted keys and values.
        preset_differences: Differences from the authors' values, each ``{option, value, published, note}``;
            empty unless the preset is official.
        protocol_changes: The user's changes to the protocol's values, each ``{option, value, protocol}``.
        notes: Notes for the user, one sentence each.
        names_backbone: Whether the user has named the backbone.
    """

    config: ExperimentConfig
    preset: str = "general"
    preset_values: Mapping[str, Any] = attrs.field(factory=dict)
    preset_differences: list[dict[str, Any]] = attrs.field(factory=list)
    protocol_changes: list[dict[str, Any]] = attrs.field(factory=list)
    notes: tuple[str, ...] = ()
    names_backbone: bool = attrs.field(default=False, eq=False)
