"""A benchmark of stored features: vectors that a frozen backbone has made of a data set's images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.plugin import (
    AsStored,
    ConfigError,
    Contents,
    FeatureFile,
    IndexArray,
    TaskStream,
    VectorFacts,
    nearest,
    open_features,
)
from lw2g_benchmarks.listed_images import FileFacts, no_files, tell_progress
from lw2g_benchmarks.options import FeaturesConfig
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import LabelledImages, build_stream
from lw2g_benchmarks.transforms import TransformPair

__all__ = ["FeaturesBenchmark", "StoredVectors"]

_HELP = "--set benchmark.file=FILE; lw2g data features --out FILE writes one"
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Split: TypeAlias = Literal["train", "test"]


class StoredVectors:
    """The vectors of one split; they stay on the disk until they are read."""

    def __init__(self, file: FeatureFile, split: _Split) -> None:
        """Hold the rows of a split of a file."""
        self._file = file
        self._rows = file.splits[split]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the vectors."""
        return self._rows.ids

    def image(self, index: int) -> Tensor:
        """Return vector ``index``, float32 ``[dim]``."""
        return self._rows.x[index : index + 1][0].float()

    def vectors(self, indices: Any) -> Tensor:
        """Return vectors by number, float32 ``[n, dim]``: a copy in memory."""
        return self._rows.x[np.asarray(indices, dtype=np.int64)].float()

    def changed(self, indices: IndexArray) -> str | None:
        """Return a file of the vectors that has changed since it was opened; None without one."""
        file = self._file.changed()
        return None if file is None else str(file)

    def digest(self) -> str:
        """Return the SHA-256 of shape, dtype and the hashes of all vectors."""
        x = self._rows.x
        hasher = hashlib.sha256(repr((x.shape, str(x.dtype))).encode())
        hasher.update(self._contents.tobytes())
        return hasher.hexdigest()

    def facts(self) -> FileFacts:
        """Return that no vector is a file of its own."""
        return no_files(len(self))

    def contents(self) -> Contents:
        """Return a hash of each vector, S16 ``[n]``."""
        return self._contents

    @cached_property
    def _contents(self) -> Contents:
        digests = []
        for row in tell_progress(self._bytes(), len(self)):
            digests.append(hashlib.blake2b(row.data, digest_size=16).digest())
        return np.array(digests, dtype="S16")

    def _bytes(self) -> Iterator[_Bytes]:
        for part in self._rows.chunks():
            # rows are handed on as bytes, because numpy has no bfloat16
            yield from part.view(torch.uint8).numpy()


@attrs.frozen
class FeaturesBenchmark:
    """Stored features, cut into tasks like images."""

    config: FeaturesConfig

    def stream(self) -> TaskStream:
        """Open the file and return the task stream.

        Raises:
            ConfigError: No file is named, or the rows cannot be cut as the options say.
            DataError: The file is missing, damaged, or does not keep the layout.
        """
        config = self.config
        if config.file is None:
            raise ConfigError("benchmark 'features' needs 'file'", _HELP)
        file = open_features(config.file)
        domains = self._domains(file)
        sources = {split: StoredVectors(file, split) for split in file.splits}
        stream = build_stream(
            name="features",
            train=_labelled(file, sources, "train", domains),
            test=_labelled(file, sources, "test", domains),
            class_names=file.class_names,
            order=ordered(config, file.class_names),
            sizes=sizes_of(config, len(file.class_names)),
            options=config,
            domains=domains,
            deviations=(_origin(file),),
        )
        return attrs.evolve(stream, vectors=_facts(file, sources))

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return that vectors are taken as they are, for training and for testing."""
        return TransformPair(train=AsStored(), test=AsStored(), train_is_deterministic=True)

    def _domains(self, file: FeatureFile) -> tuple[str, ...]:
        """Return the names of the domains in order; none where tasks are no domains.

        Raises:
            ConfigError: The file has no domains, or a wanted one is not there.
        """
        config = self.config
        if config.stream not in ("domains", "versatile"):
            if config.domain_order:
                raise ConfigError(
                    f"benchmark.domain_order: the stream {config.stream!r} has no domains",
                    "set benchmark.stream=domains or versatile",
                )
            return ()
        if not file.domain_names:
            raise ConfigError(
                f"benchmark.stream: {config.stream!r} needs domains, and {str(file.path)!r} has none",
                "store train_domain and test_domain",
            )
        for name in config.domain_order:
            if name not in file.domain_names:
                raise ConfigError(
                    f"benchmark.domain_order: no domain {name!r}{nearest(name, file.domain_names)}",
                    f"domains are {', '.join(file.domain_names)}",
                )
        if len(set(config.domain_order)) < len(config.domain_order):
            raise ConfigError(
                f"benchmark.domain_order repeats one of {config.domain_order}", "name each domain once"
            )
        return config.domain_order or file.domain_names


def _labelled(
    file: FeatureFile, sources: dict[_Split, StoredVectors], split: _Split, domains: Sequence[str]
) -> LabelledImages:
    """Return the stored vectors of a split with labels and domains by number."""
    rows = file.splits[split]
    domain: IndexArray | None = None
    if domains and rows.domain is not None:
        # numbers in the wanted order; -1, which no task has, where a domain is left out
        number_of = {name: number for number, name in enumerate(domains)}
        places = [number_of.get(name, -1) for name in file.domain_names]
        domain = np.asarray(places, dtype=np.int64)[rows.domain]
    return LabelledImages(source=sources[split], labels=rows.y, domain=domain)


def _facts(file: FeatureFile, sources: dict[_Split, StoredVectors]) -> VectorFacts:
    """Return from which backbone the vectors are, and the checksum of all of them."""
    digests = "".join(source.digest() for source in sources.values())
    return VectorFacts(
        dim=file.dim,
        model=file.said("timm_name"),
        sha256=file.said("sha256"),  # of the backbone's weights
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        pool=file.pool,
        layers=file.layers,
    )


def _origin(file: FeatureFile) -> str:
    """Return where the rows come from, in words."""
    model = file.said("timm_name")
    made = f"made by {model}" if model else "whose file names no backbone"
    origin = f"stored features in place of images: {file.dim} numbers in {file.dtype}, {made}"
    sha256 = file.said("sha256")
    if sha256:
        origin += f", weights {sha256[:12]}"
    if file.layers is not None and file.layers > 1:
        origin += f", joined of {file.layers} layers"
    return origin
