"""Options of the benchmarks. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
from attrs.validators import and_, ge, gt, le, optional

from lw2g.plugin import DEFAULT_ROOT, ROOT_VARIABLE, DataSet, option

__all__ = [
    "NORMALISATIONS",
    "ORDERS",
    "DigitsConfig",
    "FeaturesConfig",
    "FolderConfig",
    "GivenConfig",
    "GlyphsConfig",
    "Interpolation",
    "Normalisation",
    "Order",
    "OrderOptions",
    "PublishedConfig",
    "StreamKind",
    "TestResize",
    "TrainTransform",
    "TransformOptions",
    "published_config",
]

Order: TypeAlias = Literal["natural", "seeded", "shuffled"]
StreamKind: TypeAlias = Literal["classes", "domains", "versatile", "repetition"]
ORDERS: tuple[Order, ...] = ("natural", "seeded", "shuffled")
Normalisation: TypeAlias = Literal["unit", "cifar100", "native", "imagenet"]
TrainTransform: TypeAlias = Literal["none", "light", "rrc"]
TestResize: TypeAlias = Literal["crop", "squash"]
Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
NORMALISATIONS: tuple[Normalisation, ...] = ("unit", "cifar100", "native", "imagenet")

SIZES = ("increment", "base", "uneven")
"""Options that say how many classes a task has."""

_OF_CROPS = ("train_scale", "train_interpolation", "jitter_first")
_IDLE_UNDER = {"light": _OF_CROPS, "none": (*_OF_CROPS, "jitter", "flip")}
"""Options that nothing reads under a training transform."""

NORMALISE_HELP = (
    "input statistics: native (what the backbone was trained with), unit (plain 0..1), cifar100 or imagenet"
)


def _names(values: str | Iterable[object]) -> tuple[str, ...]:
    if isinstance(values, str):  # one name: a string would be taken for its letters
        return (values,)
    return tuple(map(str, values))


@attrs.frozen(kw_only=True)
class OrderOptions:
    """The options of a benchmark that choose its class order and how many images tasks have."""

    order: Order = option(
        "natural",
        "class order: natural, seeded (numpy RandomState permutation; LAMDA and CPrompt use seed "
        "1993) or shuffled (Python random.shuffle, natural for seed 0: runs of CODA-Prompt and OVOR)",
        role="draw",
    )
    order_seed: int = option(
        42,
        "seed of the seeded and shuffled class orders, of versatile and repetition streams, and of training "
        "images that shots and imbalance draw",
        validator=and_(ge(0), le(2**32 - 1)),
        role="draw",
    )
    class_order: tuple[str | int, ...] = option(
        (),
        "all class names, or numbers, in the wanted order instead of 'order'; folder leaves out classes not "
        "named",
        converter=_names,
        role="draw",
    )
    stream: StreamKind = option(
        "classes",
        "what tasks bring: new classes; domains (the same classes in a new domain each); versatile "
        "(classes and domains, in a drawn order); repetition (classes come again, with other images)",
    )
    tasks: int = option(10, "repetition: number of tasks, of 'increment' classes each", validator=ge(1))
    shots: int | None = option(
        None, "draw at most so many training images of each class of a task", validator=optional(ge(1))
    )
    shots_from: int = option(
        0, "tasks before this one (from 0) keep all images; 1: few-shot after a whole task", validator=ge(0)
    )
    imbalance: float = option(
        1.0,
        "long tail: how many times fewer training images the last class has than the first; in between "
        "they fall exponentially",
        validator=ge(1),
    )
    imbalance_shuffled: bool = option(
        False, "imbalance: draw which classes are rare, instead of the last of the order"
    )

    @property
    def draws_order(self) -> bool:
        """Whether ``order_seed`` draws the order in which classes or tasks come."""
        return self.stream in ("versatile", "repetition") or (
            self.order != "natural" and not self.class_order
        )

    def unread(self) -> dict[str, str]:
        """Return the options that nothing reads beside the others, each with what to say of it."""
        unread = {}
        if not self.draws_order and not self.drawn_images:
            remedy = (
                "leave class_order out"
                if self.class_order
                else "for another class order: benchmark.order=seeded"
            )
            unread["order_seed"] = f"draws nothing; {remedy}"
        if self.class_order:
            unread["order"] = "is not read: class_order says it"
        if self.shots is None:
            unread["shots_from"] = "is not read without shots: set benchmark.shots, too"
        if self.imbalance == 1:
            unread["imbalance_shuffled"] = "is not read without imbalance: set benchmark.imbalance, too"
        # from here on some options are those of some benchmarks alone
        if getattr(self, "test_share", None) is None:
            unread["split_seed"] = "is not read without test_share: set benchmark.test_share, too"
        transform = getattr(self, "train_transform", "rrc")
        idle = _IDLE_UNDER.get(transform, ())
        unread |= dict.fromkeys(idle, f"is not read: train_transform={transform}")
        if self.stream != "repetition":
            unread["tasks"] = "is not read: it is for stream=repetition"
        if self.stream == "domains":
            unread |= dict.fromkeys(
                SIZES, "is not read: with stream=domains a task has all classes of a domain"
            )
        elif self.stream == "repetition":
            unread |= dict.fromkeys(
                SIZES[1:], "is not read: with stream=repetition all tasks have 'increment' classes"
            )
        known = attrs.fields_dict(type(self))  # of these, a benchmark need not have all
        return {name: words for name, words in unread.items() if name in known}

    @property
    def drawn_images(self) -> str:
        """Which images ``order_seed`` draws, in words; few shots or a long tail do."""
        return "training images" if self.shots is not None or self.imbalance > 1 else ""


def _is_share(_instance: object, _field: attrs.Attribute[Any], value: float) -> None:
    """> 0 and < 1."""
    if not 0 < value < 1:
        raise ValueError(f"expected a share, such as 0.2, but got {value}")


def _split_seed() -> Any:
    """Return the option of the benchmarks that draw test images."""
    return option(
        42,  # that of order_seed, which drew them before
        "test_share: seed of the test images, which are the same in all class orders",
        validator=and_(ge(0), le(2**32 - 1)),
    )


@attrs.frozen(kw_only=True, slots=False)  # of two bases only one can have slots
class TransformOptions:
    """The options of a benchmark that choose its transforms; the defaults hold for all methods alike.

    What a method's authors used is part of its official preset.
    """

    normalise: Normalisation = option("native", NORMALISE_HELP)
    train_transform: TrainTransform = option(
        "rrc",
        "training transform: none (as for testing, so features can be cached), light (shift by up to an "
        "eighth) or rrc (random resized crop)",
        role="protocol",
    )
    train_scale: float = option(
        0.05,
        "rrc: least share of the image's area that a crop keeps",
        validator=[gt(0), le(1)],
        role="protocol",
    )
    train_interpolation: Interpolation = option("bilinear", "rrc: how a crop is resampled", role="protocol")
    jitter: float = option(
        0.0,
        "light, rrc: brightness changes by up to this share; 0: not at all",
        validator=[ge(0), le(1)],
        role="protocol",
    )
    jitter_first: bool = option(
        False,
        "rrc: whether the image is resized as for testing and jittered before it is cropped",
        role="protocol",
    )
    flip: bool = option(True, "light, rrc: whether half of the training images are mirrored", role="protocol")
    test_resize: TestResize = option(
        "crop",
        "test resize: crop (shorter side to 8/7 of the input, then centre crop) or squash (both sides)",
    )
    test_interpolation: Interpolation = option("bicubic", "how test images are resampled")


@attrs.frozen(kw_only=True)
class DigitsConfig(OrderOptions):
    """Options of the digits benchmark; the default is Inc2Task5."""

    increment: int = option(2, "new classes per task", validator=ge(1))
    normalise: Normalisation = option("native", NORMALISE_HELP)


@attrs.frozen(kw_only=True)
class GlyphsConfig(OrderOptions):
    """Options of the glyphs benchmark; the default is Inc10Task10 over 100 classes."""

    increment: int = option(10, "new classes per task", validator=ge(1))
    classes_per_family: int = option(20, "classes of each of the five families", validator=ge(1))
    train_per_class: int = option(40, "training images per class", validator=ge(1))
    test_per_class: int = option(20, "test images per class", validator=ge(1))
    image_size: int = option(32, "side of the rendered images in pixels", validator=and_(ge(8), le(512)))
    seed: int = option(0, "seed of the classes and their samples", validator=ge(0))
    normalise: Normalisation = option("native", NORMALISE_HELP)


@attrs.frozen(kw_only=True)
class FolderConfig(OrderOptions, TransformOptions):
    """Options of the folder benchmark; ``root`` has to be given."""

    root: Path | None = option(
        None,
        "folder that holds train/<class>/* and test/<class>/*; of domains and versatile streams, a folder "
        "with these for each domain",
        converter=attrs.converters.optional(Path),
        role="machine",
    )
    more_roots: tuple[Path, ...] = option(
        (),
        "further roots to merge; a class name found in several becomes <root name>/<class>",
        role="machine",
    )
    boxes: Path | None = option(
        None,
        "boxes in a file, or a folder, of COCO, YOLO, Pascal VOC or CSV instead of class folders: each is an "
        "image, cut out of one below root/train or root/test, or anywhere below root with test_share",
        converter=attrs.converters.optional(Path),
        role="machine",
    )
    margin: float = option(
        0.0, "boxes: share of its sides that a box gets on each of them", validator=and_(ge(0), le(10))
    )
    min_side: int = option(0, "boxes: leave those out that have a side of fewer pixels", validator=ge(0))
    square: bool = option(True, "boxes: whether the shorter side of each is made as long as the longer one")
    title: str | None = option(
        None, "name of the data in reports; default: folder and the names of the root folders", role="title"
    )
    increment: int = option(10, "new classes per task", validator=ge(1))
    base: int = option(0, "classes of the first task, where it is larger; 0: as the others", validator=ge(0))
    uneven: bool = option(False, "allow a smaller last task")
    domain_order: tuple[str, ...] = option(
        (), "folders of domains in the wanted order; domains not named are left out", converter=_names
    )
    test_share: float | None = option(
        None,
        "of a root without train/ and test/, ROOT/<class>/*: the share of each class's images that are test "
        "images, drawn by path with split_seed",
        validator=optional(_is_share),
    )
    split_seed: int = _split_seed()
    train_per_class: int | None = option(
        None, "read only the first training images of each class, by sorted path", validator=optional(ge(1))
    )
    test_per_class: int | None = option(
        None, "read only the first test images of each class, by sorted path", validator=optional(ge(1))
    )
    exclude: tuple[str, ...] = option(
        (), "images to leave out, such as <root name>/train/<class>/<image>; recorded", converter=_names
    )


@attrs.frozen(kw_only=True)
class GivenConfig(OrderOptions, TransformOptions):
    """Options of images that come as Python objects, or from the Hugging Face hub."""

    hub: str = option("", "data set of the Hugging Face hub, such as uoft-cs/cifar100 (extra hub)")
    increment: int | None = option(
        None, "new classes per task; not where the tasks are given", validator=optional(ge(1))
    )
    base: int = option(0, "classes of the first task, where it is larger; 0: as the others", validator=ge(0))
    uneven: bool = option(False, "allow a smaller last task")
    test_share: float | None = option(
        None,
        "of images that come as one split: the share of each class's images that are test images, drawn with "
        "split_seed",
        validator=optional(_is_share),
    )
    split_seed: int = _split_seed()


@attrs.frozen(kw_only=True)
class FeaturesConfig(OrderOptions):
    """Options of stored features; ``file`` has to be given."""

    file: Path | None = option(
        None,
        "stored features: a .npz or .safetensors file, or a folder of .npy files (lw2g data features writes "
        "one)",
        converter=attrs.converters.optional(Path),
        role="machine",
    )
    title: str | None = option(
        None, "name of the data in reports; default: the name of the file", role="title"
    )
    increment: int = option(10, "new classes per task", validator=ge(1))
    base: int = option(0, "classes of the first task, where it is larger; 0: as the others", validator=ge(0))
    uneven: bool = option(False, "allow a smaller last task")
    domain_order: tuple[str, ...] = option(
        (), "domains in the wanted order; domains not named are left out", converter=_names
    )


def _split_is_known(config: PublishedConfig, _field: attrs.Attribute[Any], value: str) -> None:
    config.data.split(value)


@attrs.frozen(kw_only=True)
class PublishedConfig(OrderOptions, TransformOptions):
    """Options of a published data set; :func:`published_config` gives each its own defaults."""

    data: ClassVar[DataSet]

    root: Path | None = option(
        None,
        f"folder below which the data set's own folder lies; default: {ROOT_VARIABLE}, else {DEFAULT_ROOT}",
        role="machine",
    )
    split: str = attrs.field(
        validator=_split_is_known,
        metadata={"help": "which training and test images: a published split, or random:<seed>"},
    )
    increment: int = attrs.field(validator=ge(1), metadata={"help": "new classes per task"})
    base: int = option(0, "classes of the first task, where it is larger; 0: as the others", validator=ge(0))
    uneven: bool = option(False, "allow a smaller last task")
    allow_incomplete: bool = option(
        False, "go on where counts or file lists are not the published ones; recorded"
    )


def published_config(data: DataSet, increment: int, **defaults: Any) -> type[PublishedConfig]:
    """Return the options class of a data set; its first split is the default.

    Args:
        data: The data set.
        increment: New classes per task.
        **defaults: Other defaults than those of all data sets.
    """
    values = {"split": next(iter(data.splits)), "increment": increment, **defaults}
    known = attrs.fields_dict(PublishedConfig)
    fields = {}
    for name, value in values.items():
        # another default alone: validator and help stay those of all data sets
        fields[name] = attrs.field(
            default=value, validator=known[name].validator, metadata=dict(known[name].metadata)
        )
    config: type[PublishedConfig] = attrs.make_class(
        f"{data.name.title().replace('-', '')}Config",
        fields,
        bases=(PublishedConfig,),
        class_body={"data": data, "__doc__": f"Options of {data.title}."},
        frozen=True,
        kw_only=True,
        slots=True,
    )
    return config
