"""An exported model: one safetensors file and a small JSON, all that predictions need of a run.

``model.json`` (sealed) is the model's manifest and the checksum of ``model.safetensors``, which holds the
learned state, and the backbone's weights where they were asked for. Read again, it needs the code of its
baseline, its retrieval strategy and its backbone, because weights carry no code. A model that goes on
learning has a third file, ``learned.safetensors``, which predictions do not read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lw2g import __version__
from lw2g.config.directory import LEARNED, MANIFEST, WEIGHTS
from lw2g.config.structure import read_plain
from lw2g.errors import DataError
from lw2g.files.contents import read_sealed, require_fit
from lw2g.files.sealed import read_header, seal_json, sync_entries, write_atomically
from lw2g.models.manifest import Manifest
from lw2g.models.places import part_of, require_free

__all__ = ["is_export", "read_export", "read_learned", "write_export"]

FORMAT = 2
_MAP = "task_to_set"
"""Stands in the metadata of the tensors, too: which sets they are is then under their checksum."""


@attrs.frozen(kw_only=True)
class Export:
    """Header of ``model.json``, the same in every format version."""

    format: int
    lw2g: str


def is_export(directory: Path) -> bool:
    """Whether a folder holds an exported model."""
    return any((directory / name).is_file() for name in (MANIFEST, WEIGHTS))


def write_export(
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    out: Path,
    learned: Mapping[str, Tensor] | None = None,
    *,
    look: Callable[[Path], None] = lambda made: None,
) -> int:
    """Write a model into a new folder, and return its bytes. The folder is either whole or not there.

    Args:
        manifest: What it is made of.
        tensors: Its learned state by name, the backbone's weights where they go along.
        out: The folder.
        learned: What only learning reads; None of a model that cannot learn.
        look: Opens what was written before it gets its name, and raises where it cannot be used.

    Raises:
        ConfigError: The folder is in use.
    """
    require_free(out)
    written = {WEIGHTS: _as_bytes(tensors, {_MAP: json.dumps(manifest.task_to_set)})}
    if learned is not None:
        written[LEARNED] = _as_bytes(learned)
    head = {"format": FORMAT, "lw2g": __version__}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in written.items()}
    files = written | {MANIFEST: seal_json(head | attrs.asdict(attrs.evolve(manifest, files=sums)))}
    made = part_of(out)
    made.mkdir(parents=True)
    try:
        for name, text in files.items():
            write_atomically(made / name, text)
        look(made)
        made.rename(out)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            require_free(out)
        raise
    sync_entries(out.parent)
    return sum(map(len, files.values()))


def read_export(directory: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """Return what an export says, and its tensors, if every byte is as it was written.

    Raises:
        DataError: A file is lost or damaged, of another version, or of another export.
    """
    again = f"export it anew: lw2g export RUN {directory}"
    path, weights = directory / MANIFEST, directory / WEIGHTS
    if not path.exists():
        raise DataError(f"the export {str(directory)!r} has lost its {MANIFEST}", f"put it back, or {again}")
    content = read_sealed(path, Export)
    if content["format"] != FORMAT:
        raise DataError(
            f"{str(path)!r} has format {content['format']!r}, and lw2g {__version__} reads {FORMAT}",
            f"{again}, or use lw2g {content['lw2g']}",
        )
    require_fit(content, path, Manifest)
    manifest = read_plain(content, Manifest)
    held, tensors = _read_tensors(weights, manifest, again)
    if read_header(held).get("__metadata__", {}).get(_MAP) != json.dumps(manifest.task_to_set):
        raise DataError(f"{str(path)!r} gives the tasks other sets than {WEIGHTS} does", again)
    return manifest, tensors


def read_learned(directory: Path, manifest: Manifest) -> dict[str, Tensor]:
    """Return what only learning reads of an export.

    Raises:
        DataError: It is lost or damaged.
    """
    return _read_tensors(directory / LEARNED, manifest, f"put it back, or copy {directory} anew")[1]


def _read_tensors(path: Path, manifest: Manifest, again: str) -> tuple[bytes, dict[str, Tensor]]:
    """Return the bytes and the tensors of a file whose checksum the manifest has."""
    try:
        held = path.read_bytes()
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}", again) from error
    if hashlib.sha256(held).hexdigest() != manifest.files.get(path.name):
        raise DataError(f"{str(path)!r} does not match its checksum in {MANIFEST}", again)
    try:
        return held, load_tensors(held)
    except SafetensorError as error:
        raise DataError(f"{str(path)!r} holds no tensors ({error})", again) from error


def _as_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    # copies: tensors of a file may not share memory
    content: bytes = save_tensors(
        {name: value.detach().cpu().clone() for name, value in tensors.items()}, metadata
    )
    return content
