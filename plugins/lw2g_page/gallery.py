"""Thumbnails of a run's misclassified test images, read from the data set."""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.config.directory import MOVED
from lw2g.config.sources import named_options, place_options, resolve_source
from lw2g.config.structure import NONE
from lw2g.config.toml import read_json, read_toml
from lw2g.errors import DataError, Lw2gError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.recomputed import Columns
from lw2g_page.inside import Inside, owned

__all__ = ["ConfusedPair", "Gallery", "GalleryImage", "confused_most", "gallery_of", "mistakes"]

_SIDE = 96
"""Pixels of a thumbnail's longer side."""
_PICTURES = 400
"""The largest number of thumbnails in all: they make most of a page's size."""
_EACH = 5
"""The largest number of thumbnails per task and kind of mistake."""

_PAIRS = 6
"""The largest number of confused pairs of classes that are shown."""
_IMAGES_OF_A_PAIR = 4
"""The largest number of thumbnails of each pair."""

RETRIEVED = "wrong set retrieved"
CLASSIFIED = "right set, wrong class"


@attrs.frozen(kw_only=True)
class GalleryImage:
    """A test image with a mistake.

    Attributes:
        task: Its task, from 1.
        mistake: The kind of mistake.
        true: Name of its class.
        predicted: Name of the predicted class.
        right: Whether that is the true one, although another set was retrieved.
        retrieved: The retrieved task, from 1; None without a hard choice.
        sample: Its id.
        source: The thumbnail as a data URL.
    """

    task: int
    mistake: str
    true: str
    predicted: str
    right: bool
    retrieved: int | None
    sample: str
    source: str


@attrs.frozen(kw_only=True)
class Gallery:
    """Pictures, or why there are none."""

    pictures: Sequence[GalleryImage] = ()
    why: str = ""


@attrs.frozen(kw_only=True)
class ConfusedPair:
    """A class that is taken for another one.

    Attributes:
        true: Name of the class.
        predicted: Name of the other one.
        count: How many of its test images are taken for the other.
        of: How many test images it has.
        sources: Thumbnails of some of them, as data URLs.
    """

    true: str
    predicted: str
    count: int
    of: int
    sources: Sequence[str]


def confused_most(inside: Inside, catalogue: Catalogue) -> Sequence[ConfusedPair]:
    """Return the pairs of classes that a run's last evaluation confuses most, most images first.

    There are none for a run of somebody else or of stored features, and where the run's test images are not
    on this machine.
    """
    columns = inside.predicted
    if columns is None or inside.run.given is not None or _is_of_vectors(inside.run, catalogue):
        return ()
    rows_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(columns["predicted"] != columns["true"]).tolist():
        rows_of[int(columns["true"][row]), int(columns["predicted"][row])].append(row)
    if not rows_of:
        return ()
    # equally frequent pairs come by number, so that a page is the same each time
    most = sorted(rows_of.items(), key=lambda item: (-len(item[1]), item[0]))[:_PAIRS]
    samples_of = [[int(columns["sample"][row]) for row in rows[:_IMAGES_OF_A_PAIR]] for _, rows in most]
    try:
        images = _images_of(inside.run, catalogue, chain.from_iterable(samples_of))
    except (Lw2gError, OSError):
        return ()
    names = inside.record["class_names"]
    pairs = []
    for ((true, predicted), rows), samples in zip(most, samples_of, strict=True):
        pairs.append(
            ConfusedPair(
                true=names[true],
                predicted=names[predicted],
                count=len(rows),
                of=int((columns["true"] == true).sum()),
                sources=[images.thumbnail(sample) for sample in samples],
            )
        )
    return pairs


def mistakes(predicted: Columns, record: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the rows of predictions to show, with the kind of mistake, by task.

    They are spread evenly over each task's mistakes of a kind.
    """
    # under a set of other tasks; a set of -1 is none, and then nothing was retrieved
    elsewhere = (predicted["set"] >= 0) & ~owned(predicted, record)
    wrong = predicted["predicted"] != predicted["true"]
    tasks = int(predicted["task"].max()) + 1
    # each task has two kinds of mistakes
    most_of_task = max(1, min(_EACH, _PICTURES // (2 * tasks)))
    chosen = []
    for task in range(tasks):
        of_task = predicted["task"] == task
        for row in _spread(np.flatnonzero(of_task & elsewhere), most_of_task):
            chosen.append((row, RETRIEVED))
        for row in _spread(np.flatnonzero(of_task & wrong & ~elsewhere), most_of_task):
            chosen.append((row, CLASSIFIED))
    return chosen


def _spread(rows: npt.NDArray[Any], most: int) -> list[int]:
    """Return at most as many rows, at even distances."""
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    spread: list[int] = rows[places].tolist()
    return spread


def gallery_of(inside: Inside, catalogue: Catalogue) -> Gallery:
    """Return thumbnails of a run's mistakes, if its data set is present."""
    if inside.predicted is None:
        return Gallery(why=inside.why)
    columns = inside.predicted
    shown = mistakes(columns, inside.record)
    if not shown:
        return Gallery(why="nothing was retrieved or classified wrongly")
    if _is_of_vectors(inside.run, catalogue):
        return Gallery(why="the run is of stored features, of which there are no pictures")
    try:
        images = _images_of(inside.run, catalogue, [int(columns["sample"][row]) for row, _ in shown])
    except (Lw2gError, OSError) as error:
        return Gallery(why=f"the data set cannot be read: {error}")
    names = inside.record["class_names"]
    pictures = []
    for row, mistake in shown:
        sample = int(columns["sample"][row])
        retrieved = int(columns["retrieved"][row])
        pictures.append(
            GalleryImage(
                task=int(columns["task"][row]) + 1,
                mistake=mistake,
                true=names[columns["true"][row]],
                predicted=names[columns["predicted"][row]],
                right=bool(columns["true"][row] == columns["predicted"][row]),
                retrieved=None if retrieved < 0 else retrieved + 1,
                sample=images.ids[sample],
                source=images.thumbnail(sample),
            )
        )
    return Gallery(pictures=pictures)


def _is_of_vectors(run: ReportedRun, catalogue: Catalogue) -> bool:
    """Return whether a run's test images are vectors that a backbone has made of them."""
    entry = catalogue.find("backbone", run.config["backbone"]["name"])
    component: Any = None if entry is None else entry.component
    return component is not None and component.fit_vectors is not None


def _images_of(run: ReportedRun, catalogue: Catalogue, samples: Iterable[int]) -> _TestFiles | _TestImages:
    """Return the test images of a run: single files if they can show all ``samples``, else its stream.

    Files are read at once. A stream needs torch, and examines all images of the run.

    Raises:
        DataError: The run was tested on other images.
    """
    files = _TestFiles(run, catalogue)
    if all(files.has(sample) for sample in samples):
        return files
    return _TestImages(run, catalogue)


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
