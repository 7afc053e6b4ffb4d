"""Write the text vectors that the constraint ``lgcl`` reads (``--set constraints.lgcl.file=OUT``).

With a CLIP model, from a folder or from the local cache of transformers (nothing is downloaded), the
sentences of all classes, and of all tasks where the increment is given:

    python -m lw2g_constraints.export cifar100.json OUT.safetensors --model FOLDER --increment 10

From vectors that exist already, one row per class in the order of the names (run it with
``--set constraints.lgcl.task_text=mean`` then: nobody has encoded the tasks' sentences):

    python -m lw2g_constraints.export cifar100.json OUT.safetensors --rows FEATURES.safetensors

NAMES is a JSON list of class names in the order of the tasks, or a JSON table that has it as "classes".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from lw2g.inputs.text_vectors import class_sentence, task_sentence, words, write_vectors
from lw2g_constraints.text import ClipEncoder

__all__ = ["main"]


def read_class_names(path: Path) -> list[str]:
    """Return the class names of a JSON file, in order."""
    content = json.loads(path.read_text())
    names: list[str] = content["classes"] if isinstance(content, dict) else content
    return names


def read_rows(path: Path, count: int) -> Tensor:
    """Return the one tensor of a file that has a row per class."""
    with safe_open(path, framework="pt") as file:
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    fitting = [tensor for tensor in tensors.values() if tensor.ndim == 2 and len(tensor) == count]
    if len(fitting) != 1:
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise SystemExit(f"expected one tensor of {count} rows in {str(path)!r} but got {shapes}")
    return fitting[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file that the arguments ask for; by default those of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", type=Path, help="JSON file of class names")
    parser.add_argument("out", type=Path, help="file to write, .safetensors")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="folder or cached name of a CLIP model")
    source.add_argument("--rows", type=Path, help="safetensors file with a row per class")
    parser.add_argument("--increment", type=int, help="classes per task; left out: no sentences of tasks")
    parsed = parser.parse_args(arguments)
    names = read_class_names(parsed.names)
    if parsed.rows is not None:
        rows, sentences = read_rows(parsed.rows, len(names)), [words(name) for name in names]
        write_vectors(parsed.out, rows, sentences, encoder=parsed.rows.name)
        return
    step = parsed.increment or len(names)
    tasks = [names[start : start + step] for start in range(0, len(names), step)] if parsed.increment else []
    sentences = list(dict.fromkeys([*map(class_sentence, names), *map(task_sentence, tasks)]))
    encoder = ClipEncoder(parsed.model)
    kept = [sentence for sentence in sentences if encoder.fits(sentence)]
    for sentence in sentences:
        if sentence not in kept:
            print(f"left out, longer than the model reads: {sentence}")
    write_vectors(parsed.out, encoder.encode(kept), kept, encoder=parsed.model)


if __name__ == "__main__":
    main()
