"""Small versions of a run's test images, read from the data set."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import MOVED
from lw2g.config.sources import named_options, place_options, resolve_source
from lw2g.config.structure import NONE
from lw2g.config.toml import read_json, read_toml
from lw2g.errors import DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun

__all__ = ["Allowance", "Thumbnails"]

_SIDE = 96
"""Pixels of a thumbnail's longer side."""


@attrs.define
class Allowance:
    """How many bytes the thumbnails of a page may still take: they make most of its size."""

    left: int = 2_000_000


class Thumbnails:
    """Small versions of a run's test images.

    Single files are read where they can show what is asked for. Else the run's stream is opened, once; it
    needs torch, and examines all images of the run.
    """

    def __init__(self, run: ReportedRun, catalogue: Catalogue, allowance: Allowance) -> None:
        self._run = run
        self._catalogue = catalogue
        self._allowance = allowance

    @property
    def of_vectors(self) -> bool:
        """Whether the run's test images are vectors that a backbone has made of them."""
        entry = self._catalogue.find("backbone", self._run.config["backbone"]["name"])
        component: Any = None if entry is None else entry.component
        return component is not None and component.fit_vectors is not None

    def of(self, samples: Sequence[int]) -> Mapping[int, str]:
        """Return thumbnails as data URLs by sample, as many of the first as the page has room for.

        Raises:
            Lw2gError: The data set cannot be read, or the run was tested on other images.
            OSError: Likewise.
        """
        images: _TestFiles | _TestImages = self._files
        if not all(self._files.has(sample) for sample in samples):
            images = self._stream
        made = {}
        for sample in samples:
            url = images.thumbnail(sample)
            if len(url) > self._allowance.left:
                break
            self._allowance.left -= len(url)
            made[sample] = url
        return made

    def name(self, sample: int) -> str:
        """Return the id of a test image."""
        return self._ids[sample]

    @cached_property
    def _ids(self) -> list[str]:
        return _tested_ids(self._run)

    @cached_property
    def _files(self) -> _TestFiles:
        return _TestFiles(self._run, self._catalogue)

    @cached_property
    def _stream(self) -> _TestImages:
        return _TestImages(self._run, self._catalogue)


def _benchmark_now(run: ReportedRun) -> Mapping[str, Any]:
    """Return the options of a run's benchmark, with the place where its data lie now."""
    moved = run.path / MOVED
    options: Mapping[str, Any] = read_toml(moved)["benchmark"] if moved.exists() else run.config["benchmark"]
    return options


def _roots_of(benchmark: Mapping[str, Any], catalogue: Catalogue) -> list[Path]:
    """Return the places of a benchmark's data that its options, as plain values, name."""
    roots = []
    for name in place_options(catalogue.get("benchmark", benchmark["name"]).config):
        value = benchmark.get(name)
        listed = value if isinstance(value, list | tuple) else [value]
        roots += [Path(place) for place in listed if place not in (None, NONE)]
    return roots


def _tested_ids(run: ReportedRun) -> list[str]:
    """Return the ids of a run's test images by position."""
    tested: list[str] = []
    files = [name for name in run.record["files"] if name.startswith("samples")]
    for file in sorted(files, key=len):  # samples.json comes before those of further sources
        tested += read_json(run.path / file)
    return tested


def _data_url(picture: Any) -> str:
    """Return a small version of a PIL image as a data URL."""
    picture.thumbnail((_SIDE, _SIDE))
    content = io.BytesIO()
    picture.save(content, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


class _TestFiles:
    """The test images of a run whose ids are paths that begin with the name of a root folder.

    A stream examines all its images and needs torch, and a page shows a few of them.
    """

    def __init__(self, run: ReportedRun, catalogue: Catalogue) -> None:
        roots = _roots_of(_benchmark_now(run), catalogue)
        self._roots = {root.resolve().name: root for root in roots}
        self.ids = _tested_ids(run) if roots else []

    def has(self, sample: int) -> bool:
        """Return whether an image is there and in a mode that every reader decodes alike."""
        from PIL import Image

        path = self._path(sample)
        if path is None or not path.is_file():
            return False
        with Image.open(path) as picture:
            return picture.mode in ("L", "RGB") and "transparency" not in picture.info

    def thumbnail(self, sample: int) -> str:
        """Return a small version of an image as a data URL."""
        from PIL import Image

        path = self._path(sample)
        assert path is not None
        with Image.open(path) as picture:
            return _data_url(picture.convert("RGB"))

    def _path(self, sample: int) -> Path | None:
        """Return where an image would lie; None where its id does not begin with a root's name."""
        if not self.ids:
            return None
        name, _, below = self.ids[sample].partition("/")
        root = self._roots.get(name)
        return None if root is None else root / below


class _TestImages:
    """The test images of a run's stream by position.

    Raises:
        DataError: The run was tested on other images.
    """

    def __init__(self, run: ReportedRun, catalogue: Catalogue) -> None:
        from lw2g.pixels.streams import joined
        from lw2g.runtime.returned import stream_of

        later = [recorded["benchmark"] for recorded in run.record.get("sources", ())[1:]]
        sources = []
        streams = []
        for options in (_benchmark_now(run), *later):
            source = resolve_source(catalogue, *named_options(options))
            sources.append(source)
            benchmark = catalogue.get("benchmark", source.name).build(source.config)
            streams.append(stream_of(benchmark, source.name))
        _, stream = joined(sources, streams)
        self._parts = [task.test for task in stream.tasks]
        self._starts = np.cumsum([0, *map(len, self._parts)])
        self.ids: list[str] = []
        for part in self._parts:
            self.ids += part.ids

        if _tested_ids(run) != self.ids:
            raise DataError("the run was tested on other images")

    def thumbnail(self, sample: int) -> str:
        """Return a small version of an image as a data URL."""
        from PIL import Image

        part = int(np.searchsorted(self._starts, sample, side="right")) - 1
        data = self._parts[part]
        pixels = data.source.image(int(data.indices[sample - self._starts[part]]))
        return _data_url(Image.fromarray(pixels.permute(1, 2, 0).numpy()))
