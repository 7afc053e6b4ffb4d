"""A checkpoint of others: opened by what it holds, not by its name, and its tensors by their plain names."""

from __future__ import annotations

import zipfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import load_file
from torch import Tensor

from lw2g.errors import ConfigError, DataError, first_line
from lw2g.ground.notes import tell_note_once
from lw2g.vit.hub_folder import weight_files
from lw2g.vit.pickled import load_pickled
from lw2g.vit.pointers import require_content

__all__ = ["first_few", "format_of", "read_weights", "unwrapped"]

# timm's order: averaged weights (EMA) before those that were trained. Those that timm does not know come
# after what it knows; `encoder` is I-JEPA's, beside its predictor
_CONTAINERS = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model",
    "ema_state_dict",
    "model_state_dict",
    "ema_model",
    "ema",
    "teacher",
    "module",
    "encoder",
)
_WRAPPERS = ("_orig_mod.", "module.", "model.", "backbone.")
"""What compilers, data parallelism and trainers put before the names of a model's tensors."""
_SUFFIXES = (".pth", ".pt", ".tar", ".bin", ".safetensors", ".npz")
_FIRST = 3

Format = Literal["npz", "safetensors", "torch"]


def format_of(path: Path) -> Format:
    """Return in which format a weights file is; its name decides where its content does not.

    Raises:
        ConfigError: It is in none that is known.
        DataError: There is no file, or something else in its place.
    """
    (file, *_) = weight_files(path)
    require_content(file)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        return "npz" if names and all(name.endswith(".npy") for name in names) else "torch"
    # safetensors begin with the length of their header in eight bytes, and the header is a JSON object
    with file.open("rb") as opened:
        head = opened.read(9)
    length = int.from_bytes(head[:8], "little")
    if head[8:] == b"{" and length <= file.stat().st_size:
        return "safetensors"
    if head[:1] == b"\x80":  # a pickle
        return "torch"
    if file.suffix not in _SUFFIXES:
        raise ConfigError(
            f"unknown weights format {file.suffix!r} of {str(file)!r}", f"known are {', '.join(_SUFFIXES)}"
        )
    named: dict[str, Format] = {".npz": "npz", ".safetensors": "safetensors"}
    return named.get(file.suffix, "torch")


def read_weights(path: Path, own: Container[str] = ()) -> dict[str, Tensor]:
    """Return the tensors of a file or a folder, by their names without what wraps a model.

    Args:
        path: The file, or a folder with one or several (:func:`lw2g.vit.hub_folder.weight_files`).
        own: Names of the model's tensors, from which nothing is cut off.

    Raises:
        ConfigError: The format is not known.
        DataError: There is no file, it cannot be read, or it holds no state dict.
    """
    state: dict[str, Tensor] = {}
    for file in weight_files(path):
        state |= unwrapped(_state_dict_of(_read(file), str(file)), str(file), own)
    return state


def _read(path: Path) -> Mapping[str, Any]:
    """Return the content of a file of weights, as it is stored."""
    format_ = format_of(path)
    try:
        if format_ == "safetensors":
            tensors: Mapping[str, Any] = load_file(path)
            return tensors
        checkpoint = load_pickled(path)
    except Exception as error:  # given text or noise, safetensors may raise anything
        raise DataError(
            f"weights file {str(path)!r} cannot be read ({first_line(error)})",
            "download it again, or export its state dict as safetensors",
        ) from error
    if not isinstance(checkpoint, Mapping):
        kind = type(checkpoint).__name__
        raise DataError(f"weights file {str(path)!r} holds {kind!r}", "expected a state dict")
    return checkpoint


def _state_dict_of(checkpoint: Mapping[str, Any], source: str) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: those at the top, or of the first container that it has.

    Of averaged and trained weights the averaged ones are taken, as timm does; which ones were taken is logged
    where there is a choice.

    Args:
        checkpoint: Content of the file.
        source: Name of the checkpoint in messages.

    Raises:
        DataError: It holds no state dict.
    """
    held = {key: tensors for key in _CONTAINERS if (tensors := _tensors_in(checkpoint.get(key)))}
    if not held:
        tensors = _tensors_at_top(checkpoint)
        if not tensors:
            raise DataError(
                f"{source!r} holds no state dict but {first_few(checkpoint) or 'nothing'}",
                f"expected tensors by name, at the top or under {', '.join(_CONTAINERS)}",
            )
        return tensors
    taken, tensors = next(iter(held.items()))
    # weights of a model like another: half of its tensors at least
    others = [
        key
        for key, value in checkpoint.items()
        if key != taken and 2 * len(_tensors_in(value)) >= len(tensors)
    ]
    if others:
        several = f"{source!r} holds several sets of weights"
        tell_note_once(f"{several}: {taken!r} is read, and not {first_few(others)}")
    return tensors


def _tensors_at_top(table: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors that stand in a table itself."""
    return {str(key): value for key, value in table.items() if isinstance(value, Tensor)}


def _tensors_in(value: Any) -> dict[str, Tensor]:
    """Return the tensors in a part of a checkpoint: its own, or those of a container in it."""
    if not isinstance(value, Mapping):
        return {}
    own = _tensors_at_top(value)
    if own:
        return own
    # trainers keep beside averaged weights how they are averaged: {"ema": {"state_dict": ..., "decay": ...}}
    inner = (_tensors_at_top(value[key]) for key in _CONTAINERS if isinstance(value.get(key), Mapping))
    return next(filter(None, inner), {})


def unwrapped(tensors: Mapping[str, Tensor], source: str, own: Container[str] = ()) -> dict[str, Tensor]:
    """Return tensors by their names without the prefixes of what wraps a model, in whatever order they stand.

    >>> import torch
    >>> list(unwrapped({"module._orig_mod.norm.bias": torch.zeros(1)}, "file"))
    ['norm.bias']

    Args:
        tensors: The tensors.
        source: Name of the checkpoint in messages.
        own: Names of the model's tensors, from which nothing is cut off.

    Raises:
        DataError: Two of them get the same name.
    """
    plain: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name = _unwrapped_name(key, own)
        if name in plain:
            raise DataError(
                f"{source!r} holds {name!r} under two prefixes", "export the state dict of one model alone"
            )
        plain[name] = tensor
    return plain


def _unwrapped_name(name: str, own: Container[str]) -> str:
    """Return a name without the prefixes of programs that wrap models: the model's own, if it has it."""
    while name not in own:
        shorter = name
        for prefix in _WRAPPERS:
            shorter = shorter.removeprefix(prefix)
        if shorter == name:
            break
        name = shorter
    return name


def first_few(names: Iterable[Any]) -> str:
    """Return the first of some names for a message, and how many more there are."""
    shown = [repr(name) for name in names]
    if len(shown) <= _FIRST:
        return ", ".join(shown)
    return f"{', '.join(shown[:_FIRST])} and {len(shown) - _FIRST} more"
