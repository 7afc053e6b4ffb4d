"""Options of the low-rank baselines. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import deep_iterable, ge, gt, le, lt, optional

from lw2g.plugin import (
    HeadOptions,
    LowRankOptions,
    ReplayOptions,
    ScheduleOptions,
    SteppingOptions,
    blocks_option,
    option,
    targets_option,
)

__all__ = [
    "CLoraConfig",
    "EwcConfig",
    "FinetuneConfig",
    "HideLoraConfig",
    "InfLoraConfig",
    "LwfConfig",
    "ReplayConfig",
    "SdLoraConfig",
    "SequentialConfig",
    "SlcaConfig",
]


@attrs.frozen(kw_only=True)
class TrainedFactorsOptions(LowRankOptions):
    """Options of low-rank methods that train both factors."""

    up_on_reuse: Literal["project", "freeze", "free"] = option(
        "project",
        "up factor of a reused set: protected like the down factor, frozen, or free (then old outputs drift)",
        on_reuse=True,
    )


@attrs.frozen(kw_only=True)
class CLoraConfig(SteppingOptions, TrainedFactorsOptions):
    """Options of ``c-lora``; defaults are those of InfLoRA's comparison on CIFAR-100."""

    rank: int = option(64, "rank of an update", validator=ge(1), published=64)
    lr: float = option(0.001, "learning rate of Adam, not scaled", validator=gt(0), published=0.001)
    penalty: float = option(
        0.5,
        "weight of the overlap with earlier updates (of fourth order in an update); 0: sequential LoRA",
        validator=ge(0),
        published=0.5,
    )


@attrs.frozen(kw_only=True)
class HideLoraConfig(TrainedFactorsOptions, ScheduleOptions, ReplayOptions):
    """Options of ``hide-lora``; defaults are those of one of the authors' processes on CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option(
        (0, 1, 2, 3, 4), "blocks that get a set's updates; empty for all", empty=True
    )
    rank: int = option(8, "rank of an update", validator=ge(1))
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or a random one (never averaged then)",
        published="previous",
    )
    batch_size: int = option(24, "images per step", validator=ge(1), role="batch")
    lr: float = option(
        0.01, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        2.0, "bound of the gradient norm", validator=optional(gt(0)), published=2.0
    )
    ensemble: float = option(
        0.1, "weight of the mean of the other sets' factors in a new set", validator=[ge(0), lt(1)]
    )
    contrastive: float = option(0.01, "weight of the contrastive term", validator=ge(0))

    @property
    def effective_lr(self) -> float:
        """The learning rate an optimizer sees: linear in the batch size."""
        return self.lr * self.batch_size / 256


@attrs.frozen(kw_only=True)
class InfLoraConfig(SteppingOptions, LowRankOptions):
    """Options of ``inflora``; defaults are those of InfLoRA-b5 for CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option(
        (0, 1, 2, 3, 4), "blocks that get a set's updates; empty for all (InfLoRA without b5)", empty=True
    )
    lr: float = option(0.001, "learning rate of Adam, not scaled", validator=gt(0))
    design: Literal["pcp", "pc"] = option(
        "pcp",
        "matrix whose leading directions are the down factor: P C P (the paper's projected inputs) or P C",
        published="pc",
        literal={"pc": "the release projects the second moment on one side only"},
    )
    reuse: Literal["continue", "redesign"] = option(
        "continue",
        "a reused set keeps its down factor, or is folded and designed again: then reuse equals growth "
        "and the number of sets is a label",
    )
    transform: Literal["train", "test"] = option(
        "train", "transform under which design and memory read a task's images", published="train"
    )
    memory_energy: float = option(
        0.95, "share of input energy that the memory holds after task 1", validator=[gt(0), le(1)]
    )
    memory_power: Literal[2, 4] = option(
        4,
        "energies are squared singular values (2, the paper) or their squares (4, as released and tuned)",
        published=4,
    )
    memory_residual: Literal["pcp", "pc"] = option(
        "pc",
        "matrix whose leading directions later tasks add to the memory: P C (as released and tuned), or "
        "P C P (the paper's projected inputs; fewer directions)",
        published="pc",
    )
    memory_rule: Literal["reach", "below"] = option(
        "below",
        "the memory of task 1 reaches the energy, or stays one direction below it (as released); later tasks "
        "always reach it",
        published="below",
    )


_TRAINED_HEAD = {"head": ("linear",)}


@attrs.frozen(kw_only=True)
class SlcaConfig(HeadOptions):
    """Options of ``slca-plus-plus``; defaults are those of the authors on CIFAR-100."""

    trained_tasks: int = option(
        0,
        "how many tasks, from the first on, train the network; a head in closed form learns later ones from "
        "features that move no more; 0: all",
        validator=ge(0),
        published=0,
    )
    rank: int = option(4, "rank of the updates; 0: none", validator=ge(0), published=4)
    final_norm: Literal["pretrained", "fresh"] = option(
        "pretrained",
        "the final norm starts from the backbone's, or as torch does (as released: first features are not "
        "the pre-trained ones then)",
        published="fresh",
    )
    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(128, "images per step", validator=ge(1), published=128, role="batch")
    lr: float = option(
        0.01,
        "learning rate of the newest classifier, by SGD with momentum 0.9",
        validator=gt(0),
        published=0.01,
    )
    slow_factor: float = option(
        0.1,
        "learning rate of everything in the network, as a multiple of the classifier's",
        validator=gt(0),
        published=0.1,
    )
    least_lr: float = option(
        1e-4,
        "rate towards which half a cosine goes, the same for all (1e-5 with MoCo-v3)",
        validator=ge(0),
        published=1e-4,
    )
    weight_decay: float = option(
        5e-4, "L2 coefficient on everything that is trained, in training and alignment", validator=ge(0)
    )
    plain: float = option(1.0, "weight of cross-entropy", validator=ge(0))
    reverse: float = option(0.1, "weight of reverse cross-entropy; 0: none", validator=ge(0))
    align_epochs: int = option(
        5,
        "epochs of alignment, of a step per seen class; 0: none",
        validator=ge(0),
        published=5,
        only=_TRAINED_HEAD,
    )
    align_samples: int = option(
        256,
        "samples per class and epoch of alignment, and per step",
        validator=ge(1),
        published=256,
        only=_TRAINED_HEAD,
        unless={"align_epochs": (0,)},
    )
    temperature: float = option(
        0.1,
        "temperature of alignment, over the norm of the logits",
        validator=gt(0),
        only=_TRAINED_HEAD,
        unless={"align_epochs": (0,)},
    )


@attrs.frozen(kw_only=True)
class SdLoraConfig(TrainedFactorsOptions):
    """Options of ``sd-lora``; defaults are those of the authors' code on CIFAR-100."""

    targets: tuple[Literal["q", "k", "v"], ...] = targets_option(("q", "v"))
    rank: int = option(10, "rank of an update", validator=ge(1), published=10)
    reduced_ranks: tuple[int, ...] = option(
        (),
        "ranks of later sets (the variant RR has [8, 6]); none: all have the first one's",
        validator=deep_iterable(ge(1)),
        converter=tuple,
    )
    reduce_after: tuple[int, ...] = option(
        (4, 8),
        "number of sets after which each of the reduced ranks holds (as released; the paper's are [3, 7])",
        validator=deep_iterable(ge(1)),
        converter=tuple,
        published=(4, 8),
        unless={"reduced_ranks": ((),)},
    )
    optimizer: Literal["sgd", "adam"] = option(
        "sgd", "sgd with momentum 0.9 (as released), or Adam (the paper)"
    )
    lr: float = option(0.008, "learning rate of everything that is trained", validator=gt(0))
    later_lr: float | None = option(
        None, "learning rate from the second task on; none: the same", validator=optional(gt(0))
    )
    milestones: tuple[int, ...] = option(
        (), "epochs after which the rate drops", validator=deep_iterable(ge(1)), converter=tuple
    )
    drop: float = option(0.05, "factor of each drop", validator=[gt(0), le(1)], unless={"milestones": ((),)})
    magnitude: float = option(
        0.8, "what magnitudes begin with (as released; the paper: 1)", validator=gt(0), published=0.8
    )
    magnitudes: Literal["learned", "ones"] = option(
        "learned", "magnitudes are learned with every task, or stay 1", published="learned"
    )
    directions: Literal["all", "first"] = option(
        "all",
        "every task trains its set, or the first task alone and later ones magnitudes and head",
        published="all",
    )
    new_direction: Literal["raw", "normalised"] = option(
        "raw",
        "the trained set enters unchanged (as released), or divided by its factors' norms like "
        "finished ones (the paper)",
    )
    boundary: Literal["carry", "reset"] = option(
        "carry",
        "a new task begins with the function that the last one ended with, or finished sets are divided by "
        "their norms and all magnitudes are reset",
        published="reset",
        literal={
            "reset": "as released: sizes that were learned are forgotten, old outputs jump at each task"
        },
    )
    absorb: float | None = option(
        None,
        "least share of a new set outside the span of the old ones that keeps it (the variant KD); one with "
        "less is absorbed into their magnitudes; none: all are kept",
        validator=optional([ge(0), le(1)]),
    )


@attrs.frozen(kw_only=True)
class SequentialConfig(LowRankOptions):
    """Options of all rows on one LoRA; defaults are EWC-LoRA's on CIFAR-100."""

    lr: float = option(5e-4, "learning rate of Adam, not scaled", validator=gt(0))
    head_factor: float = option(10.0, "learning rate of the head over that of the updates", validator=gt(0))
    weight_decay: float = option(0.0, "L2 coefficient, on everything that is trained", validator=ge(0))


@attrs.frozen(kw_only=True)
class FinetuneConfig(SequentialConfig):
    """Options of ``finetune``."""

    loss: Literal["task", "seen"] = option(
        "task",
        "classes of the cross-entropy: the task's own, which leaves old rows of the head alone and so works "
        "against forgetting, or all seen so far, which is the lower bound of most papers",
    )


@attrs.frozen(kw_only=True)
class LwfConfig(FinetuneConfig):
    """Options of ``lwf``."""

    warmup_epochs: int = option(
        0,
        "passes in which a later task trains the head alone, before everything is trained (Li & Hoiem's "
        "warm-up); 0: none",
        validator=ge(0),
    )

    distillation: float = option(
        1.0, "weight of the distillation of old classes; 0: finetune", validator=ge(0), published=1.0
    )
    temperature: float = option(
        2.0,
        "temperature of the distillation",
        validator=gt(0),
        published=2.0,
        unless={"distillation": (0,)},
    )


@attrs.frozen(kw_only=True)
class EwcConfig(FinetuneConfig):
    """Options of ``ewc``."""

    penalty: float = option(
        1e7,
        "lambda: half of it weighs the squares of the new update; the best value depends on batch_size, as "
        "the importance is of batches; 0: none",
        validator=ge(0),
        published=1e7,
    )
    retain: float = option(
        1.0,
        "gamma: factor on the importance from earlier tasks when a task adds its own",
        validator=[ge(0), le(1)],
        published=1.0,
        unless={"penalty": (0,)},
    )
    fisher: Literal["plain", "reversed"] = option(
        "plain",
        "gradients whose squares are the importance: of the task's loss, which vanish where it is learned "
        "well, or of that loss under negated logits, where they do not (EWC-DR, arXiv 2603.18596)",
        published="plain",
        unless={"penalty": (0,)},
    )
    boundary: Literal["dense", "release"] = option(
        "dense",
        "what a new task starts from: the weights that the last one ended with, or as released those of the "
        "sums of all down factors and of all up factors",
        published="release",
        literal={"release": "the product of summed factors is another function than the one just trained"},
    )


@attrs.frozen(kw_only=True)
class ReplayConfig(SequentialConfig):
    """Options of ``replay``."""

    exemplars: int = option(20, "images kept of each class, drawn at random", validator=ge(1))
