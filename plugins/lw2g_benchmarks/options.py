"""Options of the benchmarks. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs
from attrs.validators import and_, ge, in_, le, optional

__all__ = [
    "NORMALISATIONS",
    "ORDERS",
    "ROOT_VARIABLE",
    "TEST_RESIZES",
    "TRAIN_TRANSFORMS",
    "Cifar100Config",
    "DigitsConfig",
    "FolderConfig",
    "GlyphsConfig",
    "Normalisation",
    "Order",
    "OrderOptions",
    "TestResize",
    "TrainTransform",
]

ROOT_VARIABLE = "LW2G_DATA"
Order: TypeAlias = Literal["natural", "seeded", "shuffled"]
ORDERS: tuple[Order, ...] = ("natural", "seeded", "shuffled")
Normalisation: TypeAlias = Literal["unit", "cifar100", "native", "imagenet"]
TrainTransform: TypeAlias = Literal["none", "light", "rrc", "official"]
TestResize: TypeAlias = Literal["crop", "squash"]
NORMALISATIONS: tuple[Normalisation, ...] = ("unit", "cifar100", "native", "imagenet")
TRAIN_TRANSFORMS: tuple[TrainTransform, ...] = ("none", "light", "rrc", "official")
TEST_RESIZES: tuple[TestResize, ...] = ("crop", "squash")

NORMALISE_HELP = (
    "input statistics: native (what the backbone was trained with), unit (plain 0..1), cifar100 or imagenet"
)
TRAIN_HELP = (
    "training transform: none (as for testing, so features can be cached), light (shift by up to an eighth "
    "and flip), rrc (random resized crop of scale 0.05-1 and flip; LW2G and HiDe on ImageNet-R, CUB and "
    "OmniBenchmark) or official (random resized crop of scale 0.08-1, flip, brightness jitter 63/255; "
    "LW2G and HiDe on CIFAR)"
)
TEST_HELP = "test resize: crop (shorter side to 8/7 of the input, then centre crop) or squash (both sides)"


@attrs.frozen(kw_only=True)
class OrderOptions:
    """The options of a benchmark that choose its class order."""

    order: Order = attrs.field(
        default="natural",
        validator=in_(ORDERS),
        metadata={
            "help": "class order: natural, seeded (numpy RandomState permutation; LAMDA uses seed 1993) or "
            "shuffled (Python random.shuffle; CODA-Prompt, OVOR)"
        },
    )
    order_seed: int = attrs.field(
        default=42,
        validator=and_(ge(0), le(2**32 - 1)),
        metadata={"help": "seed of the seeded and shuffled class orders"},
    )


@attrs.frozen(kw_only=True)
class DigitsConfig(OrderOptions):
    """Options of the digits benchmark; the default is Inc2Task5."""

    increment: int = attrs.field(default=2, validator=ge(1), metadata={"help": "new classes per task"})
    normalise: Normalisation = attrs.field(
        default="native", validator=in_(NORMALISATIONS), metadata={"help": NORMALISE_HELP}
    )


@attrs.frozen(kw_only=True)
class GlyphsConfig(OrderOptions):
    """Options of the glyphs benchmark; the default is Inc10Task10 over 100 classes."""

    increment: int = attrs.field(default=10, validator=ge(1), metadata={"help": "new classes per task"})
    classes_per_family: int = attrs.field(
        default=20, validator=ge(1), metadata={"help": "classes of each of the five families"}
    )
    train_per_class: int = attrs.field(
        default=40, validator=ge(1), metadata={"help": "training images per class"}
    )
    test_per_class: int = attrs.field(default=20, validator=ge(1), metadata={"help": "test images per class"})
    image_size: int = attrs.field(
        default=32, validator=and_(ge(8), le(512)), metadata={"help": "side of the rendered images in pixels"}
    )
    seed: int = attrs.field(
        default=0, validator=ge(0), metadata={"help": "seed of the classes and their samples"}
    )
    normalise: Normalisation = attrs.field(
        default="native", validator=in_(NORMALISATIONS), metadata={"help": NORMALISE_HELP}
    )


def _names(values: str | Iterable[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


@attrs.frozen(kw_only=True)
class FolderConfig(OrderOptions):
    """Options of the folder benchmark; ``root`` has to be given."""

    root: str = attrs.field(
        default="", metadata={"help": "folder that holds train/<class>/* and test/<class>/*"}
    )
    more_roots: tuple[str, ...] = attrs.field(
        default=(),
        converter=_names,
        metadata={
            "help": "further roots to merge; a class name found in several becomes <root name>/<class>"
        },
    )
    increment: int = attrs.field(default=10, validator=ge(1), metadata={"help": "new classes per task"})
    uneven: bool = attrs.field(default=False, metadata={"help": "allow a smaller last task"})
    class_order: tuple[str, ...] = attrs.field(
        default=(),
        converter=_names,
        metadata={
            "help": "class names in the wanted order instead of 'order'; classes not named are left out"
        },
    )
    train_per_class: int | None = attrs.field(
        default=None,
        validator=optional(ge(1)),
        metadata={"help": "use only the first training images of each class, by sorted path"},
    )
    test_per_class: int | None = attrs.field(
        default=None,
        validator=optional(ge(1)),
        metadata={"help": "use only the first test images of each class, by sorted path"},
    )
    normalise: Normalisation = attrs.field(
        default="native", validator=in_(NORMALISATIONS), metadata={"help": NORMALISE_HELP}
    )
    train_transform: TrainTransform = attrs.field(
        default="rrc", validator=in_(TRAIN_TRANSFORMS), metadata={"help": TRAIN_HELP}
    )
    test_resize: TestResize = attrs.field(
        default="crop", validator=in_(TEST_RESIZES), metadata={"help": TEST_HELP}
    )
    cache_mb: int = attrs.field(
        default=1024, validator=ge(0), metadata={"help": "memory for decoded images in MiB, in each process"}
    )


@attrs.frozen(kw_only=True)
class Cifar100Config(OrderOptions):
    """Options of Split CIFAR-100; the defaults are those of LW2G and HiDe-Prompt."""

    root: str = attrs.field(
        default="",
        metadata={
            "help": f"folder that holds cifar-100-python/; default: environment variable {ROOT_VARIABLE}"
        },
    )
    download: bool = attrs.field(default=False, metadata={"help": "let torchvision download missing data"})
    increment: int = attrs.field(default=10, validator=ge(1), metadata={"help": "new classes per task"})
    normalise: Normalisation = attrs.field(
        default="cifar100", validator=in_(NORMALISATIONS), metadata={"help": NORMALISE_HELP}
    )
    train_transform: TrainTransform = attrs.field(
        default="official", validator=in_(TRAIN_TRANSFORMS), metadata={"help": TRAIN_HELP}
    )
    test_resize: TestResize = attrs.field(
        default="crop", validator=in_(TEST_RESIZES), metadata={"help": TEST_HELP}
    )
