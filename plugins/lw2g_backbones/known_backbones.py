"""The published checkpoints by short names, from ``checkpoints.toml``, and options of backbones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs.validators import ge, optional

from lw2g.plugin import Layers, PoolWord, layers_option, make_record, option, pool_option, read_table

__all__ = [
    "PRESETS",
    "BackbonePreset",
    "KnownFile",
    "MicroConfig",
    "PresetConfig",
    "StoredConfig",
    "TimmConfig",
    "Use",
    "facts_of",
]

_FILE = "checkpoints.toml"


@attrs.frozen(kw_only=True)
class MicroConfig:
    """The micro ViT: its file says what it is; only how its features are made can be chosen."""

    pool: PoolWord = pool_option()
    layers: Layers = layers_option()


@attrs.frozen(kw_only=True)
class PresetConfig:
    """A preset is one checkpoint; only how its features are made can be chosen."""

    pool: PoolWord = pool_option()
    layers: Layers = layers_option()


@attrs.frozen(kw_only=True)
class TimmConfig:
    """Any timm model by its name."""

    model: str = option("", "timm model with its tag; a bare architecture is legal with a weights file")
    mean: tuple[float, float, float] | None = option(
        None, "input mean per channel; needed for a bare architecture, else read from the tag"
    )
    std: tuple[float, float, float] | None = option(
        None, "input standard deviation per channel; needed for a bare architecture, else read from the tag"
    )
    pool: PoolWord = pool_option()
    layers: Layers = layers_option()


@attrs.frozen(kw_only=True)
class StoredConfig:
    """What stored features are of; a run takes from their file what is left out."""

    model: str = option("", "the backbone that made them, with its tag; default: as their file says")
    sha256: str = option("", "SHA-256 of its weights file; default: as their file says", role="fingerprint")
    dim: int | None = option(None, "their width; default: as their file says", validator=optional(ge(1)))
    pool: PoolWord | None = pool_option(None, "how its output was pooled; default: as their file says")
    layers: int | None = option(
        None,
        "of how many of its last layers they are joined; default: as their file says",
        validator=optional(ge(1)),
        role="fingerprint",
    )


@attrs.frozen(kw_only=True)
class KnownFile:
    """A file of a checkpoint whose hash is known.

    Attributes:
        name: Its name, as its publisher gave it.
        sha256: All 64 digits in hexadecimal, or as many of the first as are known.
        size: Bytes, where known.
        confirmed: Whether the authors' own code or two independent mirrors say so.
    """

    name: str
    sha256: str = attrs.field(validator=attrs.validators.matches_re(r"[0-9a-f]{8,64}"))
    size: int | None = None
    confirmed: bool = False

    def __str__(self) -> str:
        digits = self.sha256
        if len(digits) < 64:
            digits = f"begins with {digits}"
        size = ""
        if self.size is not None:
            size = f", {self.size:,} bytes"
        state = "confirmed" if self.confirmed else "unconfirmed"
        return f"{self.name}: sha256 {digits}{size} ({state})"


@attrs.frozen(kw_only=True)
class Use:
    """Who calls a checkpoint what.

    Attributes:
        where: Methods or lines of code.
        called: The name there.
        loads: What their code asks timm 0.6 for, or the file.
    """

    where: str
    called: str
    loads: str


@attrs.frozen(kw_only=True)
class BackbonePreset:
    """One published checkpoint.

    Attributes:
        name: Our short name.
        timm_name: timm model, with the exact tag where timm can fetch the weights.
        mean: Input mean per channel the weights were trained with.
        std: Input standard deviation per channel.
        file: The official file.
        page: Where the authors publish it.
        summary: One line.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels.
        image_size: Side of the input where a user names none and the model's own is not what papers use.
        files: The files whose hash is known; every record has the hash of the loaded file.
        used: Who uses it, and under which name; "IN21K" and "Sup-21K" are not one file.
    """

    name: str
    timm_name: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    file: str
    page: str
    summary: str
    finetuned_on_1k: bool = False
    image_size: int | None = None
    files: tuple[KnownFile, ...] = ()
    used: tuple[Use, ...] = ()

    @property
    def fetched_by_timm(self) -> bool:
        """Whether timm can fetch the weights itself; else the user brings the file."""
        # the tag behind the point names the weights; a bare name is an architecture
        return "." in self.timm_name

    @property
    def hub(self) -> str:
        """The repository of the hub from which timm fetches the weights; empty if it cannot."""
        if not self.fetched_by_timm:
            return ""
        return f"timm/{self.timm_name}"

    @property
    def where(self) -> str:
        """Where a user without the file gets it."""
        return f"get {self.file!r} ({self.page}) and pass it with --weights FILE"


def facts_of(preset: BackbonePreset) -> tuple[str, ...]:
    """Return what `lw2g plugins` says about a preset, one sentence each."""
    used = [f"used by {use.where} as {use.called!r} ({use.loads})" for use in preset.used]
    unknown = "sha256: none known; a record has that of the loaded file"
    hashes = [str(known) for known in preset.files] or [unknown]
    labels = "has seen" if preset.finetuned_on_1k else "has not been tuned on"
    return (
        f"weights: {preset.timm_name}; file {preset.file} ({preset.page})",
        *hashes,
        f"labels: {labels} those of ImageNet-1k",
        *used,
        "results with different checkpoints do not compare, whatever papers call them",
    )


def _read() -> tuple[BackbonePreset, ...]:
    tables = read_table("lw2g_backbones", _FILE)
    presets = []
    for name, table in tables["checkpoints"].items():
        presets.append(_preset(name, table, tables["inputs"]))
    return tuple(presets)


def _preset(name: str, table: dict[str, Any], inputs: Mapping[str, Any]) -> BackbonePreset:
    where = f"lw2g_backbones/{_FILE}: {name}"
    files = tuple(make_record(KnownFile, file, f"{where}.files") for file in table.get("files", ()))
    used = tuple(make_record(Use, use, f"{where}.used") for use in table.get("used", ()))
    # many checkpoints share their input statistics, which the file names once
    statistics = inputs[table.pop("inputs")]
    return make_record(BackbonePreset, table | statistics, where, name=name, files=files, used=used)


PRESETS: tuple[BackbonePreset, ...] = _read()
