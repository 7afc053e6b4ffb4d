"""Options of the adapter baselines. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import ge, gt, le

from lw2g.plugin import AdapterSetOptions, HeadOptions, option

__all__ = ["EaseConfig", "MosConfig", "SemaConfig", "TunaConfig"]


@attrs.frozen(kw_only=True)
class EaseConfig(AdapterSetOptions):
    """Options of ``ease``."""

    init_from: Literal["previous", "random"] = option(
        "random",
        "what a new set starts from: a random one, or the most recently trained set",
        published="random",
    )
    other_weight: float = option(
        0.1,
        "weight of the cosines in the subspaces of other sets beside that in a class's own",
        validator=ge(0),
    )
    other_share: Literal["together", "each"] = option(
        "together",
        "whether the other subspaces have that weight together (as released), or each of them (the paper)",
        published="together",
        unless={"other_weight": (0,)},
    )
    plain_weight: float = option(
        0.0,
        "weight of the cosine of un-adapted features; 0: none, which saves a forward",
        validator=ge(0),
    )


@attrs.frozen(kw_only=True)
class TunaConfig(AdapterSetOptions):
    """Options of ``tuna``; defaults are the authors' for CIFAR-100."""

    bottleneck: int = option(16, "inner width of an adapter", validator=ge(1), published=16)
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or a random one (sets then share no "
        "basis in which to merge them)",
        published="previous",
    )
    epochs: int = option(15, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(
        16, "images per step; a fifth of the samples per class of alignment", validator=ge(1), role="batch"
    )
    lr: float = option(0.01, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    margin: float = option(
        0.0, "margin that is subtracted from the cosine of the true class (CosFace)", validator=ge(0)
    )
    orthogonality: Literal["none", "code", "pairwise"] = option(
        "code",
        "how up-projections are kept off those of other sets: not at all, by their mean rows (as released, "
        "with next to no effect), or by all pairs of rows",
    )
    second: Literal["universal", "newest"] = option(
        "universal",
        "what answers beside the chosen set: the merge of all sets, or the newest set",
        published="newest",
        literal={"newest": "the released evaluation takes the newest set for the merged one"},
    )
    align_epochs: int = option(30, "epochs of alignment of the head from class Gaussians", validator=ge(0))
    align_lr: float = option(
        0.005, "learning rate of alignment", validator=gt(0), unless={"align_epochs": (0,)}
    )
    align_schedule: Literal["cosine", "cosine-5"] = option(
        "cosine",
        "learning rate of alignment: half a cosine over its epochs, or a cosine with a period of 10 epochs",
        published="cosine-5",
        literal={"cosine-5": "the released scheduler has a period of 5 epochs, whatever their number"},
        unless={"align_epochs": (0,)},
    )
    mean_decay: bool = option(
        False,
        "whether the means of old classes are shrunk in alignment, to 0.9 of their size at most",
        unless={"align_epochs": (0,)},
    )
    decay_order: Literal["age", "released"] = option(
        "age",
        "which means shrink most if any do: those of the oldest task, or the newest ones (as released)",
        published="released",
        literal={
            "released": "the release gives tasks numbers of the wrong sign; no effect without mean_decay"
        },
        unless={"mean_decay": (False,), "align_epochs": (0,)},
    )


@attrs.frozen(kw_only=True)
class MosConfig(AdapterSetOptions):
    """Options of ``mos``; defaults are the authors' for CIFAR-100."""

    bottleneck: int = option(16, "inner width of an adapter", validator=ge(1), published=16)
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or a random one",
        published="previous",
    )
    lr: float = option(0.03, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    head_factor: float = option(
        0.1, "learning rate of the head, as a multiple of the adapters'", validator=gt(0), published=0.1
    )
    merge: float = option(
        0.1,
        "how far every step draws the adapters towards the mean of the other sets",
        validator=[ge(0), le(1)],
        published=0.1,
    )
    merging: Literal["once", "released"] = option(
        "once",
        "when adapters are drawn: after every step, or at every block of its forward too, and class means of "
        "later tasks are taken with dropout (as released)",
        published="released",
        literal={"released": "the release merges 13 times a step of 12 blocks: 0.9^13 of a set stays"},
        unless={"merge": (0,)},
    )
    contrastive: float = option(0.1, "weight of the contrastive term", validator=ge(0), published=0.1)
    ensemble: bool = option(
        True, "whether the nearest class mean under the first set joins the answer", published=True
    )
    statistics: Literal["covariance", "variance"] = option("covariance", "what is kept of a class's features")
    align_epochs: int = option(
        30, "epochs of alignment of the head from class Gaussians", validator=ge(0), published=30
    )
    align_lr: float = option(
        0.005,
        "learning rate of alignment",
        validator=gt(0),
        published=0.005,
        unless={"align_epochs": (0,)},
    )


@attrs.frozen(kw_only=True)
class SemaConfig(HeadOptions):
    """Options of ``sema``; defaults are the authors' for CIFAR-100."""

    bottleneck: int = option(16, "inner width of an adapter", validator=ge(1), published=16)
    latent: int = option(128, "inner width of a descriptor", validator=ge(1), published=128)
    growing: int = option(3, "last blocks that may get further adapters", validator=ge(1), published=3)
    router: Literal["modules", "zero"] = option(
        "modules",
        "what the softmax of a block's router is over: its modules, or these and a fixed zero, against which "
        "the row of the first one learns",
        published="modules",
        literal={
            "modules": "alone in its task, the first module has the weight 1 and its row no gradient: the "
            "row stays as drawn, and later rows are learned against noise"
        },
    )
    threshold: float = option(
        2.0,
        "how far a task must lie from all descriptors of a block, in standard deviations of their own errors",
    )
    distance: Literal["signed", "absolute"] = option(
        "signed",
        "which images are novel: those described worse than a descriptor's own, or better ones too",
        published="absolute",
        literal={"absolute": "the release takes unusually well described images for novel ones"},
    )
    unit: Literal["task", "batch"] = option(
        "task",
        "what must be novel: the mean over a task's images, or over some batch of 128 of them",
        published="batch",
        literal={"batch": "the release grows once a single batch is novel: their order decides"},
    )
    epochs: int = option(5, "passes over a task's images for an adapter and the head", validator=ge(0))
    lr: float = option(0.005, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    descriptor_epochs: int = option(20, "passes for a descriptor", validator=ge(0), published=20)
    descriptor_lr: float = option(0.01, "learning rate of a descriptor", validator=gt(0), published=0.01)
    batch_size: int = option(32, "images per step", validator=ge(1), published=32, role="batch")
    weight_decay: float = option(5e-4, "L2 coefficient, on everything that is trained", validator=ge(0))
