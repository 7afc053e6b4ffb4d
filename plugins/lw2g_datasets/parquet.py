"""Writes the images of the hub's parquet files as class folders: ``train/007.name/000123.jpg``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lw2g.errors import ConfigError, DataError, counted
from lw2g.interfaces.dataset import HubRoute
from lw2g_datasets.download import Report, need_room

__all__ = ["export"]

_SUFFIXES = {b"\xff\xd8": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp"}
_ROWS = 256


def export(files: Sequence[Path], route: HubRoute, folder: Path, num_classes: int, report: Report) -> None:
    """Write the images of parquet files into ``folder/<split>/<class>/``.

    Folders start with the class number, so that they sort like the labels; file names count the rows of a
    split, since the parquet files have no names.

    Args:
        files: Files ``<split>-00000-of-00003.parquet``; splits that the route lacks are skipped.
        route: Maps splits to folders, and names the columns of image and label.
        folder: The target folder.
        num_classes: Number of classes.
        report: Receives the progress.

    Raises:
        ConfigError: pyarrow is not installed.
        DataError: A file is damaged or has other columns, or a label is missing.
    """
    try:
        import pyarrow.parquet as parquet
        from pyarrow import ArrowException
    except ImportError as error:
        raise ConfigError("parquet files need pyarrow", "run `pip install 'lw2g[data]'`") from error
    counts = dict.fromkeys(route.splits.values(), 0)
    for path in sorted(files):
        split = route.splits.get(path.name.partition("-")[0])
        if split is None:
            continue
        written = 0
        try:
            with parquet.ParquetFile(path) as file:
                image = _column(file.schema_arrow, route.image, path)
                label = _column(file.schema_arrow, route.label, path)
                names = _class_names(file.schema_arrow, label, num_classes, path)
                for batch in file.iter_batches(batch_size=_ROWS, columns=[image, label]):
                    for row in batch.to_pylist():
                        written += _write(row[image], row[label], folder / split, counts[split], names, path)
                        counts[split] += 1
                    report(f"unpacking {path.name}", written, None)
        except (ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # pyarrow's own have no errno
                raise
            reason = str(error).split("\n")[0]
            raise DataError(f"{str(path)!r} is damaged ({reason})", "delete it and fetch it again") from error
    lacking = [split for split, count in counts.items() if not count]
    if lacking:
        raise DataError(
            f"no rows for {lacking[0]!r} in {len(files)} parquet files", "name another source with --from"
        )


def _column(schema: Any, wanted: Sequence[str], path: Path) -> str:
    """Return the first wanted name that is a column."""
    for name in wanted:
        if name in schema.names:
            return name
    raise DataError(
        f"{str(path)!r} has no column {wanted[0]!r} (found {schema.names!r})",
        "name another source with --from",
    )


def _class_names(schema: Any, label: str, num_classes: int, path: Path) -> list[str]:
    """Return a folder name per label, with the class's name if the file has it."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {})
    class_names = features.get(label, {}).get("names") or [""] * num_classes
    if len(class_names) != num_classes:
        raise DataError(
            f"{str(path)!r} has {counted(len(class_names), 'class')}, not {num_classes}",
            "name another source with --from",
        )
    width = len(str(num_classes - 1))
    folders = []
    for number, name in enumerate(class_names):
        folder = f"{number:0{width}}"
        if name:
            # letters that every file system takes
            folder += "." + re.sub(r"[^\w.+-]+", "_", name)[:80]
        folders.append(folder)
    return folders


def _write(image: Any, label: Any, folder: Path, number: int, names: Sequence[str], path: Path) -> int:
    """Write one row's image under the name that its bytes say, and return its size."""
    content = image.get("bytes") if isinstance(image, dict) else None
    if not isinstance(content, bytes) or not isinstance(label, int) or not 0 <= label < len(names):
        raise DataError(
            f"row {number} of {str(path)!r} holds no image or no label", "name another source with --from"
        )
    suffixes = [suffix for start, suffix in _SUFFIXES.items() if content.startswith(start)]
    if not suffixes:
        raise DataError(f"row {number} of {str(path)!r} holds no image", "name another source with --from")
    folder_of_class = folder / names[label]
    folder_of_class.mkdir(parents=True, exist_ok=True)
    need_room(folder_of_class, len(content))
    return (folder_of_class / f"{number:06}{suffixes[0]}").write_bytes(content)
