"""Encoders that turn sentences into text vectors; :mod:`lw2g.pixels.text_vectors` says what they are."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import ConfigError, DataError, class_sentence, composed, nearest, read_text_vectors, text_of

__all__ = ["ClipEncoder", "HashEncoder", "TextEncoder", "VectorFile", "orthogonal_map", "read_names"]


class TextEncoder(Protocol):
    """Turns sentences into vectors.

    Attributes:
        dim: Width of the vectors.
    """

    dim: int

    def fits(self, sentence: str) -> bool:
        """Return whether the encoder reads the sentence to its end."""

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Return ``[n, dim]`` float32 vectors on the CPU, of any length."""


class HashEncoder:
    """A random vector per sentence, the same in every process; it has no meaning and is for tests."""

    def __init__(self, dim: int) -> None:
        """Make vectors of the given width."""
        self.dim = dim

    def fits(self, sentence: str) -> bool:
        """Return True: any sentence can be hashed."""
        return True

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Return Gaussian directions seeded by the sentences' SHA-256, ``[n, dim]``."""
        return torch.stack([self._vector(sentence) for sentence in sentences])

    def _vector(self, sentence: str) -> Tensor:
        digest = hashlib.sha256(sentence.encode()).digest()
        # 63 bits: torch takes seeds as signed numbers
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        return functional.normalize(torch.randn(self.dim, generator=generator), dim=0)


class VectorFile:
    """Vectors that were computed elsewhere, looked up by exact sentence, else by the class that it names."""

    def __init__(self, path: Path) -> None:
        """Read a file of text vectors.

        Raises:
            ConfigError: There is no such file.
            DataError: It is not a file of text vectors.
        """
        self._read = read_text_vectors(path, "constraints.lgcl.file")
        self.dim = self._read.dim

    def fits(self, sentence: str) -> bool:
        """Return True: the file holds vectors of whole sentences."""
        return True

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Return the rows of the sentences, ``[n, dim]``.

        Raises:
            DataError: The file has no row for one of them.
        """
        return torch.stack([self._row(sentence) for sentence in sentences])

    def _row(self, sentence: str) -> Tensor:
        """Return the vector of a sentence, ``[dim]``; an unknown one is refused with what to do about it."""
        row = self._read.sentence(sentence)
        if row is not None:
            return row
        what = f"constraints.lgcl.file: {str(self._read.path)!r} has no vector for {sentence!r}"
        before, after = class_sentence("{}").split("{}")
        subject = sentence.removeprefix(before).removesuffix(after)
        if " or " in subject:  # the sentence of a task: "A photo of apple or aquarium fish."
            raise DataError(what, "add it, or set constraints.lgcl.task_text to 'mean'")
        raise DataError(
            what + nearest(subject, self._read.sentences),
            "add it, or say with constraints.lgcl.names what the file calls the class",
        )


class ClipEncoder:
    """The text tower of a CLIP model of the transformers package, from a folder or from its local cache.

    Nothing is ever downloaded. The model stays on the CPU, outside every module of the run.
    """

    def __init__(self, model: str) -> None:
        """Load a model by folder or by the name under which it was cached.

        Raises:
            ConfigError: The package is not installed, or the model is not on this machine.
        """
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise ConfigError(
                "constraints.lgcl.encoder: 'hf-clip' needs the package 'transformers', which is not "
                "installed",
                "install it, or use 'precomputed' with vectors written on another machine",
            ) from error
        try:
            # transformers draws the weights of a model before it reads them; the run's draws must not move
            with torch.random.fork_rng(devices=[]):
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=True)
                loaded = transformers.CLIPTextModelWithProjection.from_pretrained(
                    model, local_files_only=True
                )
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"constraints.lgcl.model: {model!r} is neither a folder with a CLIP text model nor in the "
                "local cache of 'transformers', and nothing is downloaded",
                "fetch it first, give a folder, or use encoder 'precomputed'",
            ) from error
        self._model = loaded.float().eval().requires_grad_(False)
        self._limit = int(loaded.config.max_position_embeddings)
        self.dim = int(loaded.config.projection_dim)

    def fits(self, sentence: str) -> bool:
        """Return whether the sentence has no more tokens than the model reads."""
        return len(self._tokenizer(sentence)["input_ids"]) <= self._limit

    @torch.no_grad()
    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Return projected text features, ``[n, dim]``; sentences are cut at the model's limit."""
        tokens = self._tokenizer(
            list(sentences), padding=True, truncation=True, max_length=self._limit, return_tensors="pt"
        )
        vectors: Tensor = self._model(**tokens).text_embeds
        return vectors.float()


def orthogonal_map(source: int, target: int) -> Tensor:
    """Return a fixed random map ``[source, target]`` with orthonormal rows or columns, whichever are fewer.

    With ``target >= source`` it keeps all cosines.
    """
    long = max(source, target)
    short = min(source, target)
    # the widths are the seed: a resumed run, and one with another seed, compare with the same vectors
    # no width reaches 2**20, so that no two pairs have one seed
    generator = torch.Generator().manual_seed(long * 2**20 + short)
    columns: Tensor = torch.linalg.qr(torch.randn(long, short, generator=generator, dtype=torch.float64)).Q
    if source < target:
        columns = columns.mT
    return columns.float()


def read_names(path: Path) -> Mapping[str, str]:
    """Return what classes are called in text, from a JSON table ``{"n02009912": "American egret"}``.

    Raises:
        ConfigError: There is no such file.
        DataError: It holds no such table.
    """
    if not path.is_file():
        raise ConfigError(
            f"constraints.lgcl.names: no file {str(path)!r}", "give a JSON table of class names"
        )
    refusal = DataError(
        f"constraints.lgcl.names: {str(path)!r} is not a JSON table from class names to words",
        'write one like {"n02009912": "American egret"}',
    )
    try:
        table = json.loads(text_of(path))
    except ValueError:
        raise refusal from None
    if not isinstance(table, dict):
        raise refusal
    for phrase in table.values():
        if not isinstance(phrase, str) or not phrase:
            raise refusal
    # names are composed (NFC), as those of a stream's classes are
    return {composed(name): phrase for name, phrase in table.items()}
