"""Write the text vectors of ``lgcl`` and of the head ``text``: ``python -m lw2g_constraints.export``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from lw2g.plugin import (
    ConfigError,
    DataError,
    class_sentence,
    expanded,
    task_sentence,
    text_of,
    words,
    write_vectors,
)
from lw2g_constraints.text import ClipEncoder

__all__ = ["main"]

# a constant and no docstring: python -OO drops those
_DESCRIPTION = """Write the text vectors that the constraint ``lgcl`` and the head ``text`` read.

With a CLIP model, from a folder or from the local cache of transformers (nothing is downloaded), the
sentences of all classes, and of all tasks where the increment is given:

    python -m lw2g_constraints.export cifar100.json OUT.safetensors --model FOLDER --increment 10

From vectors that exist already, one row per class in the order of the names (lgcl takes them with
``--set constraints.lgcl.task_text=mean``: nobody has encoded the tasks' sentences):

    python -m lw2g_constraints.export cifar100.json OUT.safetensors --rows FEATURES.safetensors

NAMES is a JSON list of class names in the order of the tasks, or a JSON table that has it as "classes".

The head ``text`` reads two things more. With ``--classes FILE``, a JSON list of as many class names, NAMES
are sentences as they stand, several for a class. ``--projection FILE`` takes the map of images into the space
of text, and the logit scale, from the safetensors file of a whole CLIP model (Hugging Face or open_clip).
"""


def read_class_names(path: Path) -> list[str]:
    """Return the class names of a JSON file, in order."""
    names: Any = json.loads(text_of(path))
    if isinstance(names, dict):
        names = names["classes"]
    listed: list[str] = names
    return listed


def read_rows(path: Path, count: int) -> Tensor:
    """Return the one tensor of a file that has a row per class."""
    with safe_open(path, framework="pt") as file:
        shapes: dict[str, tuple[int, ...]] = {}
        fitting: list[Tensor] = []
        for name in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(name)
            shapes[name] = tuple(tensor.shape)
            if tensor.ndim == 2 and len(tensor) == count:
                fitting.append(tensor)
    if len(fitting) != 1:
        raise SystemExit(f"expected one tensor of {count} rows in {str(path)!r} but got {shapes}")
    return fitting[0]


def read_projection(path: Path) -> tuple[Tensor, float | None]:
    """Return the map ``[d, P]`` of a CLIP model from features of images to text, and its logit scale."""
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        if "visual_projection.weight" in names:
            projection = file.get_tensor("visual_projection.weight").mT  # a linear layer's is [P, d]
        elif "visual.proj" in names:
            projection = file.get_tensor("visual.proj")
        else:
            raise SystemExit(
                f"expected 'visual_projection.weight' or 'visual.proj' in {str(path)!r} but got neither"
            )
        scale: float | None = None
        if "logit_scale" in names:
            # models learn its logarithm
            scale = float(file.get_tensor("logit_scale").exp())
    return projection, scale


def encoded(model: str, sentences: Sequence[str]) -> tuple[Tensor, list[str]]:
    """Return the vectors ``[k, dim]`` of the k sentences that a model can read whole, and these sentences."""
    encoder = ClipEncoder(model)
    kept = [sentence for sentence in sentences if encoder.fits(sentence)]
    for sentence in sentences:
        if sentence not in kept:
            print(f"left out, longer than the model reads: {sentence}")
    return encoder.encode(kept), kept


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file that the arguments ask for; by default those of the command line."""
    parser = argparse.ArgumentParser(
        description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", type=expanded, help="JSON file of class names; with --classes, of sentences")
    parser.add_argument("out", type=expanded, help="file to write, .safetensors")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="folder or cached name of a CLIP model")
    source.add_argument("--rows", type=expanded, help="safetensors file with a row per name")
    parser.add_argument("--increment", type=int, help="classes per task; left out: no sentences of tasks")
    parser.add_argument("--classes", type=expanded, help="JSON file: the class that each name speaks of")
    parser.add_argument("--projection", type=expanded, help="safetensors file of a whole CLIP model")
    parsed = parser.parse_args(arguments)
    try:
        _export(parsed)
    except (OSError, ValueError, KeyError, SafetensorError, ConfigError, DataError) as error:
        raise SystemExit(f"error: {error}") from error


def _export(parsed: argparse.Namespace) -> None:
    """Write the file that the arguments ask for.

    Names are class names, of which sentences are made; with ``--classes`` they are sentences already, and
    ``classes`` has the class of each.
    """
    names = read_class_names(parsed.names)
    classes: list[str] = []
    if parsed.classes is not None:
        classes = read_class_names(parsed.classes)
    if classes and len(classes) != len(names):
        raise SystemExit(f"expected {len(names)} classes in {str(parsed.classes)!r} but got {len(classes)}")
    if classes and parsed.increment:
        raise SystemExit("--increment makes sentences of tasks, and --classes takes sentences as they stand")
    projection: Tensor | None = None
    scale: float | None = None
    if parsed.projection is not None:
        projection, scale = read_projection(parsed.projection)
    if parsed.rows is not None:
        encoder = parsed.rows.name
        rows = read_rows(parsed.rows, len(names))
        sentences = names
        if not classes:  # names of classes, not sentences
            sentences = [words(name) for name in names]
    else:
        encoder = parsed.model
        wanted = names
        if not classes:
            wanted = _sentences(names, parsed.increment)
        rows, sentences = encoded(parsed.model, wanted)
        if classes:
            # the model may have left sentences out: their classes go with them
            encoded_sentences = set(sentences)
            kept_classes = []
            for name_of_class, sentence in zip(classes, names, strict=True):
                if sentence in encoded_sentences:
                    kept_classes.append(name_of_class)
            classes = kept_classes
    if projection is not None and projection.shape[1] != rows.shape[1]:
        raise SystemExit(
            f"expected a projection to text of width {rows.shape[1]} in {str(parsed.projection)!r} but got "
            f"{list(projection.shape)}"
        )
    write_vectors(parsed.out, rows, sentences, encoder, classes, projection=projection, logit_scale=scale)


def _sentences(names: Sequence[str], increment: int | None) -> list[str]:
    """Return the sentences of all classes, and of all tasks where there is an increment."""
    found = [class_sentence(name) for name in names]
    if increment:
        for start in range(0, len(names), increment):
            found.append(task_sentence(names[start : start + increment]))
    # the sentence of a task of one class is that of the class
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    main()
