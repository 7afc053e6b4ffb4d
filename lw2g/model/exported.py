"""An exported model: one safetensors file and a small JSON, all that predictions need of a run.

``model.json`` (sealed) is the model's manifest and the checksum of ``model.safetensors``, which holds the
learned state, and the backbone's weights where they were asked for. Read again, it needs the code of its
baseline, its retrieval strategy and its backbone, because weights carry no code. A model that goes on
learning has a third file, ``learned.safetensors``, which predictions do not read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lw2g import __version__
from lw2g.config.directory import CONFIG, LEARNED, MANIFEST, WEIGHTS, of_models, runs_of_sweep
from lw2g.disk.contents import read_sealed, require_fit
from lw2g.disk.sealed import read_header, seal_json
from lw2g.errors import DataError, as_word, no_folder
from lw2g.ground.hub_address import require_local
from lw2g.model.claimed_sizes import require_borne_out
from lw2g.model.history import require_history
from lw2g.model.manifest import Manifest
from lw2g.model.places import write_folder

__all__ = ["Saved", "is_export", "read_export", "read_learned", "read_manifest", "write_export"]

FORMAT = 2
_MAP = "task_to_set"
"""Stands in the metadata of the tensors, too: which sets they are is then under their checksum."""


@attrs.frozen(kw_only=True)
class Export:
    """Header of ``model.json``, the same in every format version."""

    format: int
    lw2g: str


@attrs.frozen(kw_only=True, eq=False)
class Saved:
    """A model as it is on disk; :class:`~lw2g.model.trained.TrainedModel` is the form that answers.

    Attributes:
        manifest: What it is made of.
        tensors: Its learned state by name, the backbone's weights where they go along.
        learned: What only learning reads; empty where nobody asked for it, and of a model that cannot learn.
    """

    manifest: Manifest
    tensors: Mapping[str, Tensor]
    learned: Mapping[str, Tensor] = attrs.field(factory=dict)


def is_export(directory: Path) -> bool:
    """Whether a folder holds an exported model."""
    return any((directory / name).is_file() for name in (MANIFEST, WEIGHTS))


def write_export(saved: Saved, out: Path, *, look: Callable[[Path], None] = lambda made: None) -> int:
    """Write a model into a new folder, and return its bytes. The folder is either whole or not there.

    Args:
        saved: The model.
        out: The folder.
        look: Opens what was written before it gets its name, and raises where it cannot be used.

    Raises:
        ConfigError: The folder is in use.
    """
    manifest = saved.manifest
    files = {WEIGHTS: _as_bytes(saved.tensors, {_MAP: json.dumps(manifest.task_to_set)})}
    if manifest.learning is not None:
        files[LEARNED] = _as_bytes(saved.learned)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    header = {"format": FORMAT, "lw2g": __version__}
    files[MANIFEST] = seal_json(header | attrs.asdict(attrs.evolve(manifest, files=sums)))
    write_folder(out, files, look=look)
    return sum(map(len, files.values()))


def read_export(directory: Path, *, whole: bool = False) -> Saved:
    """Return an exported model, if every byte is as it was written.

    Args:
        directory: Its folder.
        whole: Whether what only learning reads is read, too.

    Raises:
        DataError: There is no export; a file is lost or damaged, of another version, or of another export; or
            its parts do not fit each other.
    """
    manifest = read_manifest(directory)
    path = directory / MANIFEST
    weights = directory / WEIGHTS
    again = _again(directory)
    content_of_weights, tensors = _read_tensors(weights, manifest, again)
    metadata = read_header(content_of_weights).get("__metadata__", {})
    if metadata.get(_MAP) != json.dumps(manifest.task_to_set):
        raise DataError(f"{str(path)!r} gives the tasks other sets than {WEIGHTS} does", again)
    require_borne_out(manifest, tensors, directory)
    learned: dict[str, Tensor] = {}
    if whole:
        if manifest.learning is not None:
            learned = read_learned(directory, manifest)
        require_history(manifest, learned, directory)
    return Saved(manifest=manifest, tensors=tensors, learned=learned)


def read_manifest(directory: Path) -> Manifest:
    """Return what an exported model says of itself, whose tensors nobody has read yet.

    Raises:
        DataError: There is no export, or its description is lost, damaged or of another version.
    """
    require_local(directory)
    if not directory.is_dir():
        raise DataError(no_folder(directory), "give the folder of a model")
    if (directory / CONFIG).is_file():
        raise DataError(
            f"{str(directory)!r} holds a run and no exported model",
            f"make one: lw2g export {as_word(directory)} MODEL --learnable",
        )
    if runs := runs_of_sweep(directory):
        raise DataError(
            f"{str(directory)!r} holds the runs of a sweep and no exported model",
            f"export one of them ({runs}): lw2g export RUN MODEL --learnable",
        )
    if not is_export(directory):
        raise of_models(directory) or DataError(
            f"{str(directory)!r} holds no exported model",
            "make one: lw2g start FOLDER MODEL, or of a run: lw2g export RUN MODEL --learnable",
        )
    path = directory / MANIFEST
    if not path.exists():
        raise DataError(
            f"the export {str(directory)!r} has lost its {MANIFEST}", f"put it back, or {_again(directory)}"
        )
    content = read_sealed(path, Export)
    if content["format"] != FORMAT:
        raise DataError(
            f"{str(path)!r} has format {content['format']!r}, and lw2g {__version__} reads {FORMAT}",
            f"{_again(directory)}, or use lw2g {content['lw2g']}",
        )
    return require_fit(content, path, Manifest)


def read_learned(directory: Path, manifest: Manifest) -> dict[str, Tensor]:
    """Return what only learning reads of an export.

    Raises:
        DataError: It is lost or damaged.
    """
    return _read_tensors(directory / LEARNED, manifest, f"put it back, or copy {directory} anew")[1]


def _again(directory: Path) -> str:
    return f"make {str(directory)!r} anew (lw2g export, start or learn)"


def _read_tensors(path: Path, manifest: Manifest, again: str) -> tuple[bytes, dict[str, Tensor]]:
    """Return the bytes and the tensors of a file whose checksum the manifest has."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}", again) from error
    if hashlib.sha256(content).hexdigest() != manifest.files.get(path.name):
        raise DataError(f"{str(path)!r} does not match its checksum in {MANIFEST}", again)
    try:
        return content, load_tensors(content)
    except SafetensorError as error:
        raise DataError(f"{str(path)!r} holds no tensors ({error})", again) from error


def _as_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    # copies: tensors of a file may not share memory
    copies = {name: value.detach().cpu().clone() for name, value in tensors.items()}
    content: bytes = save_tensors(copies, metadata)
    return content
