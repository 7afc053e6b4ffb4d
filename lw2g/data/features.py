"""Stored features of a benchmark's images: computed once, in blocks that survive a kill, and written whole.

While it is made, a file lies in the folder ``FILE.part`` beside it: the rows computed so far, how many they
are, and what they are of. Whoever starts again with the same images, backbone and precision goes on there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

from lw2g import __version__
from lw2g.base.boundary import build, guarded
from lw2g.base.checks import stream_of, transforms_of
from lw2g.config.model import ExperimentConfig
from lw2g.devices.engine import Engine
from lw2g.errors import ConfigError, DataError
from lw2g.files.protocol import digest_of
from lw2g.files.sealed import sync, write_atomically
from lw2g.images.decoding import workers_of
from lw2g.images.image_set import ImageSet
from lw2g.images.pixels import Originals
from lw2g.images.shared import all_contents
from lw2g.inputs.feature_files import FORMAT, JSON_FILE, Integers, Split
from lw2g.interfaces.stream import TaskData, TaskStream, Transforms
from lw2g.models.parts import engine_of, open_backbone
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.backbone import Backbone

__all__ = ["write_features"]

Dtype = Literal["float32", "float16"]
Progress = Callable[[str, int, int], None]
_SPLITS: tuple[Split, ...] = ("train", "test")
_BLOCK = 1024
"""Images between two notes of how far it is."""
_COPY_BYTES = 1 << 20
_PLAN = "plan.json"
"""What a half file is of."""
_DONE = "done.json"
"""How many of its rows are computed."""


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
        ConfigError: The benchmark holds features already, or the file has another ending.
        DataError: The file is there already, a half file is of something else, or a feature is not finite.
    """
    _require_free(out)
    with guarded(catalogue, config):
        benchmark = build(catalogue, "benchmark", _undivided(config))
        stream = stream_of(benchmark, config.benchmark.name)
        if stream.vectors is not None:
            raise ConfigError(
                f"benchmark {config.benchmark.name!r} holds stored features already", "name one of images"
            )
        chosen = config.backbone
        component = catalogue.get("backbone", chosen.name)
        config, engine, _, backbone = open_backbone(
            config,
            engine_of(config),
            lambda: component.build(chosen.config, chosen.weights, chosen.image_size),
        )
        known = backbone.fingerprint
        transforms = transforms_of(benchmark, config.benchmark.name, known)
        images = {split: _images_of(stream, split) for split in _SPLITS}
        sizes = {split: len(of_split) for split, of_split in images.items()}
        metadata = _metadata(config, stream, backbone, transforms, images, dtype)
        part = _Part.open(out, metadata, sizes, known.dim, dtype)
        features_of = _extractor(config, backbone, engine, transforms)
        norms = {}
        for split, of_split in images.items():
            norms[split] = part.fill(split, of_split, features_of, progress)
    # after the part was opened, whose plan is a digest of what is known before
    metadata["mean_row_norm"] = norms
    part.finish(metadata, _entries(stream, images))
    return metadata


def _require_free(out: Path) -> None:
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
    config: ExperimentConfig, backbone: Backbone, engine: Engine, transforms: Transforms
) -> Callable[[TaskData], torch.Tensor]:
    """Return what computes the features of some images, in the same batches as a run does."""

    def features(part: TaskData) -> torch.Tensor:
        images = ImageSet(
            Originals([part], engine.device, limit=0, keep=False),
            transforms.test,
            deterministic=True,
            backbone=backbone,
            engine=engine,
            batch_size=config.run.evaluation_batch,
            workers=workers_of(config.run.workers, engine.device),
        )
        return images.queries(range(len(part))).cpu()

    return features


def _metadata(
    config: ExperimentConfig,
    stream: TaskStream,
    backbone: Backbone,
    transforms: Transforms,
    images: Mapping[Split, _Images],
    dtype: Dtype,
) -> dict[str, Any]:
    """Return where the rows come from, without paths of this machine and without the time."""
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
            "split": getattr(config.benchmark.config, "split", None),
            "fingerprint": stream.fingerprint,
            "images": {split: own.sha256 for split, own in images.items()},
        },
        "tools": {"lw2g": __version__, "timm": version("timm"), "torch": torch.__version__},
    }


def _entries(stream: TaskStream, images: Mapping[Split, _Images]) -> dict[str, Any]:
    """Return all entries of a file but the vectors: arrays of numbers, and lists of strings."""
    entries: dict[str, Any] = {"class_names": stream.class_map.names_by_raw_label}
    for split, own in images.items():
        entries[f"{split}_y"] = own.labels
        entries[f"{split}_id"] = own.ids
        if own.domains is not None:
            entries[f"{split}_domain"] = own.domains
            entries["domain_names"] = list(dict.fromkeys(task.domain for task in stream.tasks))
    return entries


@attrs.frozen(kw_only=True)
class _Part:
    """A file in the making.

    Attributes:
        out: The file.
        folder: Where it is made.
        rows: The vectors of each split, ``[n, d]``, in files of their own.
    """

    out: Path
    folder: Path
    rows: Mapping[Split, np.memmap[Any, np.dtype[Any]]]

    @classmethod
    def open(
        cls, out: Path, metadata: Mapping[str, Any], sizes: Mapping[Split, int], dim: int, dtype: Dtype
    ) -> _Part:
        """Begin a file, or go on with a half one.

        Raises:
            DataError: A half one is of something else.
        """
        folder = out.with_name(out.name + ".part")
        plan = json.dumps({"of": digest_of(metadata), "rows": sizes})
        if (folder / _PLAN).is_file():
            if (folder / _PLAN).read_text(encoding="utf-8") != plan:
                raise DataError(
                    f"{str(folder)!r} was begun with other images, weights or options",
                    "remove it, or name another file",
                )
            rows = {split: np.load(folder / f"{split}_x.npy", mmap_mode="r+") for split in sizes}
            return cls(out=out, folder=folder, rows=rows)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        rows = {}
        for split, size in sizes.items():
            path = folder / f"{split}_x.npy"
            rows[split] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(size, dim))
        # the plan last: without it, a kill in between begins anew
        write_atomically(folder / _PLAN, plan.encode())
        return cls(out=out, folder=folder, rows=rows)

    def fill(
        self,
        split: Split,
        images: _Images,
        features: Callable[[TaskData], torch.Tensor],
        progress: Progress,
    ) -> float:
        """Compute the rows of a split that are missing, and return the mean length of all.

        Raises:
            DataError: A feature is not finite as it is stored.
        """
        rows = self.rows[split]
        done = self._done(split)
        first = 0
        length = 0.0
        for part in images.blocks():
            last = first + len(part)
            if last > done:
                # float16 overflows to infinity, which is told below
                with np.errstate(over="ignore"):
                    rows[first:last] = features(part).numpy().astype(rows.dtype)
                self._note(split, last)
            block = rows[first:last].astype(np.float64)
            lengths = np.sqrt((block * block).sum(axis=1))
            if not np.isfinite(lengths).all():
                name = part.ids[int((~np.isfinite(lengths)).argmax())]
                raise DataError(
                    f"the feature of image {name!r} is not finite as {rows.dtype}",
                    "look at weights and precision, or store float32",
                )
            length += float(lengths.sum())
            first = last
            progress(split, first, len(images))
        return length / len(images)

    def _done(self, split: Split) -> int:
        """Return how many rows of a split are computed."""
        file = self.folder / _DONE
        if not file.is_file():
            return 0
        counts: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
        return counts.get(split, 0)

    def _note(self, split: Split, done: int) -> None:
        self.rows[split].flush()  # before the note: a row that it counts must be on the disk
        counts = {known: self._done(known) for known in self.rows} | {split: done}
        write_atomically(self.folder / _DONE, json.dumps(counts).encode())

    def finish(self, metadata: Mapping[str, Any], entries: Mapping[str, Any]) -> None:
        """Write the file whole, put it in its place, and remove the part."""
        strings = {name: value for name, value in entries.items() if isinstance(value, list)}
        arrays = {name: value for name, value in entries.items() if name not in strings}
        whole = self.folder / ("whole" + self.out.suffix)
        match self.out.suffix:
            case ".npz":
                for name, value in strings.items():
                    arrays[name] = np.array(value, dtype=str)
                arrays["metadata"] = np.array(json.dumps(metadata))
                self._archive(whole, arrays)
            case ".safetensors":
                tensors = {f"{split}_x": rows for split, rows in self.rows.items()}
                described = json.dumps({**metadata, **strings})  # the format holds numbers alone
                save_file({**tensors, **arrays}, whole, metadata={"metadata": described})
            case _:
                self._directory(whole, arrays, {**metadata, **strings})
        sync(whole)
        os.replace(whole, self.out)
        shutil.rmtree(self.folder)

    def _archive(self, whole: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for split in self.rows:
                rows = self.folder / f"{split}_x.npy"
                with _member(archive, rows.name) as member, rows.open("rb") as file:
                    shutil.copyfileobj(file, member, _COPY_BYTES)
            for name, array in arrays.items():
                with _member(archive, f"{name}.npy") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    def _directory(
        self, whole: Path, arrays: Mapping[str, npt.NDArray[Any]], described: Mapping[str, Any]
    ) -> None:
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        for split in self.rows:
            os.link(self.folder / f"{split}_x.npy", whole / f"{split}_x.npy")
        for name, array in arrays.items():
            np.save(whole / f"{name}.npy", array, allow_pickle=False)
        (whole / JSON_FILE).write_text(json.dumps(described, indent=1), encoding="utf-8")


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member to be written; it has no date, so that equal arrays make equal files."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)
