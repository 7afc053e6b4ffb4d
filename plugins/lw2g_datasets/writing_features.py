"""Stored features of a benchmark's images: computed once, in blocks that survive a kill."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from lw2g import __version__
from lw2g.config.directory import folders_of, require_outside
from lw2g.config.settings import ExperimentConfig
from lw2g.disk.lock import one_writer
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note
from lw2g.interfaces.stream import TaskData, TaskStream, Transforms
from lw2g.model.parts import device_of, open_backbone
from lw2g.pixels.decoding import open_workers
from lw2g.pixels.feature_files import FORMAT, Integers, Split
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.pixels import Originals
from lw2g.pixels.shared import all_contents, notes_on
from lw2g.pixels.workers import Workers
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import build, guarded
from lw2g.runtime.engine import Engine, find_device
from lw2g.runtime.returned import stream_of, transforms_of
from lw2g.runtime.threads import suited_threads
from lw2g.vit.backbone import Backbone
from lw2g_datasets.feature_parts import Dtype, Part

__all__ = ["write_features"]

Progress = Callable[[str, int, int], None]
_SPLITS: tuple[Split, ...] = ("train", "test")
_BLOCK = 1024
"""Images whose rows are computed together, and noted as computed."""


@attrs.frozen(kw_only=True, eq=False)
class _Images:
    """The images of one split in the order of their data set, with raw labels.

    Attributes:
        parts: Where they are; their rows follow each other in the file.
        labels: Numbers of their classes, ``[n]``.
        domains: Numbers of their domains, ``[n]``; None where there are none.
    """

    parts: tuple[TaskData, ...]
    labels: Integers
    domains: Integers | None

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[TaskData]:
        """Yield the images block by block; a block is of one source."""
        for part in self.parts:
            for start in range(0, len(part), _BLOCK):
                rows = slice(start, start + _BLOCK)
                yield TaskData(source=part.source, indices=part.indices[rows], labels=part.labels[rows])

    def require_unchanged(self) -> None:
        """Refuse images of which some were replaced while their features were computed.

        Raises:
            DataError: The first file that has changed.
        """
        for part in self.parts:
            file = part.changed()
            if file is not None:
                raise DataError(
                    f"{file!r} has changed since it was read first",
                    "put the data back as they were, or remove the half file, and begin again",
                )

    @property
    def ids(self) -> list[str]:
        """The id of each image."""
        ids: list[str] = []
        for part in self.parts:
            ids += part.ids
        return ids

    @property
    def sha256(self) -> str | None:
        """SHA-256 over the hashes of the images' pixels; None where the benchmark does not hash them."""
        contents = all_contents(self.parts)
        if contents is None:
            return None
        return hashlib.sha256(contents.tobytes()).hexdigest()


def write_features(
    config: ExperimentConfig,
    catalogue: Catalogue,
    out: Path,
    *,
    dtype: Dtype = "float32",
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Write the features of all images of a benchmark, and return the file's metadata.

    Args:
        config: Names benchmark and backbone; of the section ``run``, what decides how they compute.
        catalogue: Where components come from.
        out: A ``.npz`` or ``.safetensors`` file, or a folder that is not there yet.
        dtype: In which rows are stored; float16 rounds each number by 5e-4 of itself.
        progress: Told about split, rows done, and their total.

    Raises:
        ConfigError: The benchmark holds features already, or the file has another ending, or lies among
            the images.
        DataError: The file is there already, a half file is of something else, or a feature is not finite.
    """
    _require_free(out)
    require_outside(out, *folders_of(config.benchmark.config))
    lock = out.with_name(out.name + ".lock")
    with one_writer(out, lock=lock, or_else="name another file"), guarded(catalogue, config):
        _require_free(out)  # under the lock: another process may have written it meanwhile
        benchmark = build(catalogue, "benchmark", _undivided(config))
        stream = stream_of(benchmark, config.benchmark.name)
        if stream.vectors is not None:
            raise ConfigError(
                f"benchmark {config.benchmark.name!r} holds stored features already", "name one of images"
            )
        for text in notes_on(stream):
            tell_note(text)
        chosen = config.backbone
        component = catalogue.get("backbone", chosen.name)
        find_device(config.run.device)  # before weights are read
        built = component.build(chosen.config, chosen.weights, chosen.image_size)
        known = built.fingerprint
        transforms = transforms_of(benchmark, config.benchmark.name, known)
        workers = open_workers(config.run.workers, stream, transforms, device_of(config, built))
        config, engine, _, backbone = open_backbone(config, lambda: built)
        images = {split: _images_of(stream, split) for split in _SPLITS}
        sizes = {split: len(of_split) for split, of_split in images.items()}
        metadata = _metadata(config, catalogue, stream, backbone, transforms, images, dtype)
        part = Part.open(out, metadata, sizes, known.width, dtype)
        features_of = _extractor(config, backbone, engine, transforms, workers)
        try:
            # on as many threads as a run has
            with suited_threads(backbone, engine.device):
                norms = _filled(part, images, features_of, progress)
        finally:
            if workers is not None:
                workers.close()
        # after the part was opened, whose plan is a digest of what is known before
        metadata["mean_row_norm"] = norms
        part.finish(metadata, _entries(stream, images))
    return metadata


def _filled(
    part: Part,
    images: Mapping[Split, _Images],
    features_of: Callable[[TaskData], torch.Tensor],
    progress: Progress,
) -> dict[Split, float]:
    """Compute the rows of each split, and return their mean norms.

    Raises:
        DataError: As :func:`write_features`.
    """
    norms = {}
    for split, of_split in images.items():
        tell = partial(_tell, progress, split, len(of_split))
        norms[split] = part.fill(split, of_split.blocks(), features_of, tell)
        of_split.require_unchanged()
    return norms


def _tell(progress: Progress, split: Split, total: int, done: int) -> None:
    progress(split, done, total)


def _require_free(out: Path) -> None:
    """Refuse a place where the features cannot be written, before anything is computed."""
    if out.suffix not in ("", ".npz", ".safetensors"):
        raise ConfigError(
            f"--out: {str(out)!r} ends in {out.suffix!r}", "name a .npz or .safetensors file, or a folder"
        )
    if out.exists():
        raise DataError(f"{str(out)!r} is there already", "remove it, or name another file")
    if not out.absolute().parent.is_dir():
        raise DataError(f"no folder {str(out.absolute().parent)!r}", "make it first")


def _undivided(config: ExperimentConfig) -> Any:
    """Return the benchmark, allowed a smaller last task: how classes are cut does not enter the file."""
    options = config.benchmark.config
    if "uneven" in attrs.fields_dict(type(options)):
        return attrs.evolve(config.benchmark, config=attrs.evolve(options, uneven=True))
    return config.benchmark


def _images_of(stream: TaskStream, split: Split) -> _Images:
    """Return the images of all tasks of a split, source by source in the sources' own order."""
    ranks = stream.class_map.raw_label_ranks  # without gaps, where classes are left out
    domains = list(dict.fromkeys(task.domain for task in stream.tasks))
    by_source: dict[int, list[tuple[TaskData, int]]] = {}
    for task in stream.tasks:
        data: TaskData = getattr(task, split)
        by_source.setdefault(id(data.source), []).append((data, domains.index(task.domain)))

    parts = []
    labels = []
    domain_numbers = []
    for pairs in by_source.values():
        of_source = [data for data, _ in pairs]
        indices = np.concatenate([data.indices for data in of_source])
        order = np.argsort(indices, kind="stable")
        positions = np.concatenate([data.labels for data in of_source])[order]
        contents = all_contents(of_source)
        if contents is not None:
            contents = contents[order]
        part = TaskData(
            source=of_source[0].source, indices=indices[order], labels=positions, contents=contents
        )
        parts.append(part)
        labels.append(ranks[positions])
        domain_numbers.append(np.concatenate([np.full(len(data), domain) for data, domain in pairs])[order])
    return _Images(
        parts=tuple(parts),
        labels=np.concatenate(labels),
        domains=np.concatenate(domain_numbers) if any(domains) else None,
    )


def _extractor(
    config: ExperimentConfig,
    backbone: Backbone,
    engine: Engine,
    transforms: Transforms,
    workers: Workers | None,
) -> Callable[[TaskData], torch.Tensor]:
    """Return what computes the features of some images, in the same batches as a run does."""

    def features(part: TaskData) -> torch.Tensor:
        """Return the features of some images, ``[n, dim]`` on the CPU."""
        images = ImageSet(
            Originals([part], engine.device, limit=0, keep=False),
            transforms.test,
            deterministic=True,
            backbone=backbone,
            engine=engine,
            batch_size=config.run.evaluation_batch,
            workers=workers,
        )
        return images.queries(range(len(part))).cpu()

    return features


def _metadata(
    config: ExperimentConfig,
    catalogue: Catalogue,
    stream: TaskStream,
    backbone: Backbone,
    transforms: Transforms,
    images: Mapping[Split, _Images],
    dtype: Dtype,
) -> dict[str, Any]:
    """Return where the rows come from, without paths of this machine and without the time."""
    published = catalogue.get("benchmark", config.benchmark.name).data
    transform: Any = transforms.test
    described: Any = f"{type(transform).__module__}.{type(transform).__qualname__}"
    if attrs.has(type(transform)):
        described = attrs.asdict(transform, filter=lambda field, _: field.init)
    return {
        "format": FORMAT,
        "backbone": attrs.asdict(backbone.fingerprint),
        "norm": "after",
        "transform": described,
        "precision": config.run.precision,
        "dtype": dtype,
        "data_set": {
            "benchmark": config.benchmark.name,
            "split": None if published is None else config.benchmark.config.split,
            "fingerprint": stream.fingerprint,
            "images": {split: of_split.sha256 for split, of_split in images.items()},
        },
        "tools": {"lw2g": __version__, "timm": version("timm"), "torch": torch.__version__},
    }


def _entries(stream: TaskStream, images: Mapping[Split, _Images]) -> dict[str, Any]:
    """Return all entries of a file but the vectors: arrays of numbers, and lists of strings."""
    entries: dict[str, Any] = {"class_names": stream.class_map.names_by_raw_label}
    for split, of_split in images.items():
        entries[f"{split}_y"] = of_split.labels
        entries[f"{split}_id"] = of_split.ids
        if of_split.domains is not None:
            entries[f"{split}_domain"] = of_split.domains
            entries["domain_names"] = list(dict.fromkeys(task.domain for task in stream.tasks))
    return entries
