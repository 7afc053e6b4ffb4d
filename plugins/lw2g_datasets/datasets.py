"""The functions of lw2g for published data sets, and for features of them.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lw2g.config.protocols import LIKE_FOR_LIKE
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, UnknownComponentError, nearest
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.interfaces.dataset import (
    ROOT_VARIABLE,
    ByHand,
    DataSet,
    Split,
    default_root,
)
from lw2g.interfaces.defaults import FROZEN_BASELINE
from lw2g.registry.catalogue import Catalogue, load_catalogue

if TYPE_CHECKING:
    from lw2g.config.settings import ExperimentConfig

__all__ = [
    "ROOT_VARIABLE",
    "check_data",
    "data_sets",
    "default_root",
    "facts_of",
    "get_data",
    "images_of",
    "store_features",
    "way_to_get",
]

Progress = Callable[[str, int, int | None], None]


def _silent(step: str, done: int, total: int | None) -> None:
    """Show no progress."""


def data_sets(name: str | None = None) -> list[DataSet]:
    """List the main facts about all published data sets that benchmarks read, or all facts about ``name``.

    Args:
        name: A data set; None for all.

    Raises:
        UnknownComponentError: No data set has this name.
    """
    known = []
    for entry in load_catalogue().components():
        component = entry.component
        if isinstance(component, BenchmarkComponent) and component.data is not None:
            known.append(component.data)
    if name is None:
        return known
    by_name = {data.name: data for data in known}
    if name not in by_name:
        raise UnknownComponentError(
            f"no data set is called {name!r}{nearest(name, by_name)}", "run `lw2g data list` for all names"
        )
    return [by_name[name]]


def images_of(split: Split) -> tuple[str, str]:
    """Return the numbers of training and test images of a split, as text."""
    train = test = "?"
    if split.train is not None:
        train = str(split.train)
    if split.test is not None:
        test = str(split.test)
    return train, test


def way_to_get(data: DataSet) -> str:
    """Return how to get a data set: ``yes`` (one command), ``--revision`` (and a commit), or ``by hand``."""
    if data.direct:
        return "yes"
    return "by hand" if all(isinstance(route, ByHand) for route in data.routes) else "--revision"


def facts_of(data: DataSet) -> Iterator[str]:
    """Yield the facts about a data set, one line each."""
    yield f"page: {data.page}"
    yield f"terms: {data.terms}"
    yield f"folder below {ROOT_VARIABLE}: {data.folder or '(none of its own)'}, with {data.layout}"
    for name, split in data.splits.items():
        train, test = images_of(split)
        line = f"split {name}: {train} + {test} images, read from {split.reader}"
        if split.test_sha256:
            line += ", lists known"
        yield line
    for route in data.routes:
        yield f"from {route}"
    if data.flaws:
        yield f"flaws: {data.flaws}"
    for text in data.unconfirmed:
        yield f"unconfirmed: {text}"


@expands_paths
def get_data(
    name: str,
    *,
    root: str | Path | None = None,
    source: str | None = None,
    revision: str | None = None,
    progress: Progress = _silent,
    say: Callable[[str], None] = print,
) -> Path:
    """Fetch the data set ``name`` by the first of its routes that works.

    An interrupted download continues where it stopped. An archive is unpacked only after its checksum fits
    (if one is known), and only plain files inside the data set's own folder are written.

    Args:
        name: The data set.
        root: Folder of all data sets; None for LW2G_DATA, else ~/lw2g-data.
        source: An archive to unpack, or a folder to copy, instead.
        revision: The commit of a hub data set without a confirmed one.
        progress: Receives a step's name, how much of it is done, and its total.
        say: Receives the terms, known flaws, and notes such as a failed route.

    Returns:
        The folder of the data set.

    Raises:
        UnknownComponentError: No data set has this name.
        ConfigError: A library or a commit is missing.
        DataError: No route works; the message says how to proceed.
    """
    from lw2g_datasets.obtain import obtain

    (wanted,) = data_sets(name)
    place = default_root() if root is None else Path(root).absolute()
    say(f"{wanted.title}: {wanted.terms}; {wanted.page}")
    if wanted.rehosting_forbidden:
        say("its terms forbid redistribution")
    if wanted.flaws:
        say(f"known flaws: {wanted.flaws}")
    obtain(wanted, place, progress, say, source=source, revision=revision)
    return place / str(wanted.folder)


@expands_paths
def check_data(
    name: str,
    root: str | Path | None = None,
    *,
    split: str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Examine the data of the benchmark ``name``, below ``root`` or the environment variable LW2G_DATA.

    It decodes every image, since a JPEG may be damaged in the middle. Missing or unusable images, and
    differences from the published facts, are errors.

    Args:
        name: The benchmark.
        root: The folder of its data; None for the usual one.
        split: The split; None for the benchmark's.
        settings: Options of the benchmark by dotted keys, such as ``benchmark.test_share=0.2``.
        progress: As for :func:`get_data`.

    Returns:
        Images by class and split, checksums of the lists of files, and what is known to be wrong.

    Raises:
        UnknownComponentError: No benchmark has this name.
        ConfigError: The benchmark has no such option.
        DataError: Images are missing or cannot be used.
    """
    from lw2g_datasets.checking import examine_data

    folder = None if root is None else Path(root)
    options: dict[str, Any] = {} if folder is None else {"root": str(folder.absolute())}
    if split is not None:
        options["split"] = split
    for key, value in (settings or {}).items():
        section, _, option = key.partition(".")
        if section != "benchmark":
            raise ConfigError(
                f"{key}: only options of the benchmark can be set here", "write benchmark.OPTION"
            )
        options[option] = value
    return examine_data(name, load_catalogue(), options, progress=progress)


@expands_paths
def store_features(
    benchmark: str,
    out: str | Path,
    *,
    backbone: str | None = None,
    weights: str | Path | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    settings: Mapping[str, Any] | None = None,
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Store the features of all images of a benchmark, for ``lw2g run --benchmark features``.

    Images go through the benchmark's test transform, the same for all methods (run.protocol=like-for-like).
    Killed and started again, it goes on where it was. The file says what made it: backbone and weights,
    transform, precision and images.

    Args:
        benchmark: The benchmark whose images are read.
        out: A .npz or .safetensors file, or a new folder of .npy files.
        backbone: The frozen backbone, or any timm model; None for the benchmark's.
        weights: Its weights file.
        dtype: How numbers are stored; float16 halves the file and rounds.
        settings: Options of benchmark, backbone or run by dotted keys, such as ``benchmark.root=FOLDER``.
        progress: As for :func:`get_data`.

    Returns:
        What the file says of itself.

    Raises:
        ConfigError: The configuration is invalid, or the file has another ending.
        DataError: The file is there already, or an image cannot be used.
    """
    from lw2g_datasets.writing_features import write_features

    # the protocol of one transform for all methods: a file of features serves any of them
    overrides = {"run.protocol": LIKE_FOR_LIKE, **(settings or {})}
    catalogue = load_catalogue()
    config = _described(catalogue, benchmark, backbone, weights, overrides)
    return write_features(config, catalogue, Path(out), dtype=dtype, progress=progress)


def _described(
    catalogue: Catalogue,
    benchmark: str,
    backbone: str | None,
    weights: str | Path | None,
    overrides: dict[str, Any],
) -> ExperimentConfig:
    """Return a configuration of a benchmark and a backbone, under a method that trains nothing."""
    return resolve(
        catalogue,
        overrides=overrides,
        # a configuration has a method; this one has no options that could contradict the others
        baseline=FROZEN_BASELINE,
        benchmark=benchmark,
        backbone=backbone,
        weights=None if weights is None else Path(weights),
    ).config
