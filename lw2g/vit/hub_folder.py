"""A folder as Hugging Face's hub has it: ``config.json``, weights, and how images are normalised for them.

Importing it imports neither torch nor timm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.errors import ConfigError, DataError, no_folder, shown
from lw2g.ground.spelling import expanded
from lw2g.ground.texts import text_of
from lw2g.vit.pointers import require_content

__all__ = ["LOCAL", "Statistics", "architecture_of", "folder_of", "statistics_of", "weight_files"]

LOCAL = "local-dir:"
"""What stands before a folder in timm's names of models."""

_CONFIG = "config.json"
_PREPROCESSOR = "preprocessor_config.json"
# in this order: a folder may hold the same weights several times
_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
)
_INDEX = ".index.json"
_SUFFIXES = (".safetensors", ".pth", ".pt", ".tar", ".bin", ".ckpt", ".npz")
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's numbers of its filters, which the preprocessor's configuration has."""
_WIDTHS = {(192, 12, 3): "tiny", (384, 12, 6): "small", (768, 12, 12): "base", (1024, 24, 16): "large"}
"""Width, blocks and heads of a ViT, and what its size is called; larger ones differ by family."""
_FAMILIES: Mapping[str, tuple[str, Mapping[tuple[int, int, int], str]]] = {
    "vit": ("vit_{size}_patch{patch}_224", {(1280, 32, 16): "huge"}),
    "deit": ("deit_{size}_distilled_patch{patch}_224", {}),
    "dinov2": ("vit_{size}_patch{patch}_dinov2", {(1536, 40, 24): "giant"}),
    "dinov2_with_registers": ("vit_{size}_patch{patch}_reg4_dinov2", {(1536, 40, 24): "giant"}),
}
"""timm's names of the models of transformers whose configuration tells them."""


@attrs.frozen(kw_only=True)
class Statistics:
    """How a folder says that images are brought to its model, of values from 0 to 1.

    Attributes:
        mean: Of each channel; None if it does not say.
        std: Likewise.
        interpolation: How they are resized; None if it does not say.
    """

    mean: list[float] | None = None
    std: list[float] | None = None
    interpolation: str | None = None


def folder_of(name: str) -> Path | None:
    """Return the folder that a backbone's name stands for; None for another name.

    >>> folder_of("local-dir:weights/vit"), folder_of("vit_tiny_patch16_224")
    (PosixPath('weights/vit'), None)
    """
    if not name.startswith(LOCAL):
        return None
    return expanded(name.removeprefix(LOCAL))


def weight_files(path: Path) -> tuple[Path, ...]:
    """Return the files in which weights lie: the path itself, or those of the folder that it is.

    Raises:
        DataError: There is nothing there, the folder has no weights, or a part of them is missing.
    """
    if not path.is_dir():
        if not path.is_file():
            raise DataError(f"weights file {str(path)!r} does not exist", "check the path")
        return (path,)
    for name in _NAMES:
        file = path / name
        if file.is_file():
            return _parts(file) if name.endswith(_INDEX) else (file,)
    others = [file for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES and file.is_file()]
    if len(others) == 1:
        return (others[0],)
    if not others:
        raise DataError(f"folder {str(path)!r} holds no weights", "give the weights file itself")
    names = ", ".join(repr(file.name) for file in others[:3])
    raise DataError(
        f"folder {str(path)!r} holds several weights files and no {_NAMES[0]!r}: {names}", "give one of them"
    )


def statistics_of(path: Path) -> Statistics:
    """Return how a folder normalises images; nothing of a file, which tells nothing.

    Raises:
        DataError: Its configuration cannot be read, or states no numbers.
    """
    if not path.is_dir():
        return Statistics()
    preprocessor = path / _PREPROCESSOR
    if preprocessor.is_file():
        return _of_transformers(_table(preprocessor), preprocessor)
    file = path / _CONFIG
    if not file.is_file():
        return Statistics()
    content = _table(file)
    settings = content.get("pretrained_cfg", content)
    if not isinstance(settings, Mapping):
        raise DataError(
            f"{str(file)!r} has no table 'pretrained_cfg' but {shown(settings)}", "restore the file"
        )
    interpolation = settings.get("interpolation")
    return Statistics(
        mean=_numbers(settings, "mean", file),
        std=_numbers(settings, "std", file),
        interpolation=interpolation if isinstance(interpolation, str) else None,
    )


def architecture_of(folder: Path) -> tuple[str, int | None]:
    """Return timm's name of a folder's model, and the side of its images in pixels if the folder says.

    timm writes the name itself; of transformers' ViT, DeiT and DINOv2 their sizes tell it.

    Raises:
        ConfigError: There is no such folder, or it does not tell its architecture.
        DataError: Its configuration cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{LOCAL} {no_folder(folder)}", "check the path")
    file = folder / _CONFIG
    if not file.is_file():
        raise ConfigError(
            f"folder {str(folder)!r} has no {_CONFIG}, which tells the architecture",
            "name the architecture with --backbone, and give the folder as --weights",
        )
    content = _table(file)
    if "architecture" in content:
        return _of_timm(content, file)
    return _of_sizes(content, file)


def _of_timm(content: Mapping[str, Any], file: Path) -> tuple[str, int | None]:
    """Return name and image size as timm writes them."""
    name = content["architecture"]
    settings = content.get("pretrained_cfg", content)
    arguments = content.get("model_args") or {}
    if not isinstance(name, str) or not isinstance(settings, Mapping) or not isinstance(arguments, Mapping):
        raise DataError(f"{str(file)!r} is no configuration of timm", "restore the file")
    for key, value in arguments.items():
        if not _is_told_otherwise(key, value):
            raise ConfigError(
                f"{str(file)!r} builds {name!r} with {key}={shown(value)}, which its name does not say",
                "export a model that timm builds by its name alone",
            )
    return name, _side_of(arguments.get("img_size")) or _side_of(settings.get("input_size"))


def _is_told_otherwise(argument: str, value: Any) -> bool:
    """Return whether an argument of timm's builder needs no name: its size is set, its head is left out."""
    if argument == "in_chans":
        return bool(value == 3)
    # how features are pooled is an option of the backbone; nothing is dropped where nothing is trained
    return argument in ("img_size", "num_classes", "global_pool") or argument.endswith("_rate")


def _count(value: Any) -> int:
    """Return a number that a stranger has written, 0 where it is none."""
    return value if type(value) is int else 0


def _side_of(size: Any) -> int | None:
    """Return the side of a square image, given as a number, as two, or as two after the channels."""
    if isinstance(size, list) and len(size) in (2, 3) and size[-1] == size[-2]:
        size = size[-1]
    return size if type(size) is int else None


def _of_sizes(content: Mapping[str, Any], file: Path) -> tuple[str, int | None]:
    """Return timm's name of a model of transformers, and the side of its images in pixels.

    Its family and its width, blocks and heads tell the name.
    """
    kind = content.get("model_type")
    pattern, own_sizes = _FAMILIES.get(str(kind), ("", _WIDTHS))  # an unknown family has no pattern
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    width, blocks, heads = (_count(content.get(key)) for key in keys)
    size = {**_WIDTHS, **own_sizes}.get((width, blocks, heads))
    # timm's models have GELU, and no name of theirs says another one
    if not pattern or size is None or content.get("hidden_act", "gelu") != "gelu":
        raise ConfigError(
            f"{str(file)!r} does not tell which model of timm it is (model_type {shown(kind)}, "
            f"{', '.join(f'{key} {shown(content.get(key))}' for key in keys)})",
            "name the architecture with --backbone, and give the folder as --weights",
        )
    name = pattern.format(size=size, patch=content.get("patch_size"))
    return name, _side_of(content.get("image_size"))


def _of_transformers(content: Mapping[str, Any], file: Path) -> Statistics:
    """Return the statistics of transformers' preprocessor, of values from 0 to 1."""
    mean, std = _numbers(content, "image_mean", file), _numbers(content, "image_std", file)
    if content.get("do_normalize") is False:
        mean, std = [0.0] * 3, [1.0] * 3
    factor = content.get("rescale_factor", 1 / 255)
    if content.get("do_rescale") is False:
        factor = 1
    if type(factor) not in (int, float) or not factor > 0:  # JSON of Python may hold NaN
        raise DataError(f"{str(file)!r}: rescale_factor is {shown(factor)}", "restore the file")
    # it multiplies pixels of 0 to 255 by the factor before it normalises them; a factor that is written with
    # fewer digits than 1 / 255 has is that all the same
    largest = factor * 255
    if mean is not None and std is not None and abs(largest - 1) > 1e-6:
        mean, std = [value / largest for value in mean], [value / largest for value in std]
    filter_ = content.get("resample")
    return Statistics(
        mean=mean, std=std, interpolation=_RESAMPLING.get(filter_) if type(filter_) is int else None
    )


def _numbers(content: Mapping[str, Any], key: str, file: Path) -> list[float] | None:
    """Return a list of numbers from a file of transformers; None where it says nothing."""
    values = content.get(key)
    if values is None:
        return None
    if type(values) in (int, float):  # transformers takes one number for all channels
        values = [values] * 3
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise DataError(f"{str(file)!r}: {key} is {shown(values)} and no list of numbers", "restore the file")
    return [float(value) for value in values]


def _parts(index: Path) -> tuple[Path, ...]:
    """Return the files that an index of several names, each once."""
    places = _table(index).get("weight_map")
    names = list(places.values()) if isinstance(places, Mapping) else []
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DataError(f"{str(index)!r} names no files beside it", "download it again")
    files = tuple(index.parent / name for name in sorted(set(names)))
    for file in files:
        if not file.is_file():
            raise DataError(f"{str(index)!r} names {file.name!r}, which is missing", "download all its files")
    return files


def _table(file: Path) -> Mapping[str, Any]:
    """Return the content of a JSON file that is a table."""
    require_content(file)
    try:
        content = json.loads(text_of(file))
    except OSError as error:
        raise DataError(f"{str(file)!r} cannot be read: {error.strerror}", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{str(file)!r} is no JSON", "download it again") from error
    if not isinstance(content, Mapping):
        raise DataError(f"{str(file)!r} holds no table but {shown(content)}", "download it again")
    return content
