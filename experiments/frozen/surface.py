"""Frozen heads by the number of images a class, and small streams on which training is set beside them.

    python experiments/frozen/surface.py --data DATA --features FEATURES
    python experiments/frozen/train.py --method recommended --streams few-caltech-five --data DATA
        --weights FILE --runs RUNS

``surface.toml`` is the plan. Links ``DATA/few-SET-NUMBER/0`` for ``train.py``, and writes ``surface.json``:
right answers of every draw in per cent.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER.parent / "carries"))  # which has a heads.py, too

from heads import choices, learned, product, read  # noqa: E402
from lay_out import Classes, _link, hash_of  # noqa: E402

PLAN = tomllib.loads((FOLDER / "surface.toml").read_text(encoding="utf-8"))
FOUND = FOLDER / "surface.json"
NUMBERS = {5: "five", 10: "ten", 20: "twenty"}
"""Images a class of streams that are trained on, as their names tell them."""
OFFERED = ("lda", "ridge-12", "lda-12")
"""What `auto` chooses among."""


def stream_of(name: str, count: int) -> str:
    """Return the stream of a set with so many images a class."""
    return f"few-{name}-{NUMBERS[count]}"


def drawn(images: Path, name: str, draw: int) -> Classes:
    """Return the classes of a draw, in the order of its tasks."""
    facts = PLAN["set"][name]
    first, last = facts["classes"]
    pool = []
    for folder in sorted(images.glob(f"{facts['folder']}*/train/*")):
        if first <= int(folder.name[:3]) <= last:
            pool.append(folder)
    return random.Random(f"few {name} {draw}").sample(pool, min(PLAN["classes"], len(pool)))


def rows_of(classes: Classes, features: Path, count: int) -> tuple[dict[str, torch.Tensor], str]:
    """Return whether each test image is answered rightly, by row, and what `auto` takes."""
    images = read(classes, features, {"train": count, "test": PLAN["test_per_class"]})
    test_labels = images.labels["test"]
    labels = images.labels["train"][images.left_out]
    rows = {name: learned(name, images, len(classes))[1] for name in OFFERED}
    rows["product"] = product(rows["lda"], rows["ridge-12"], labels)
    takes = choices(rows, len(labels))["auto"]
    rows["auto"] = rows[takes]
    return {name: rows[name].scores.argmax(1) == test_labels for name in PLAN["rows"]}, takes


def main() -> None:
    """Link the streams, and compute what has not been computed yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(PLAN["set"]), choices=list(PLAN["set"]))
    for name in ("data", "features"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--streams", action="store_true", help="link the streams, print their facts, and end")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for name in arguments.sets:
        own = [drawn(arguments.data / "images", name, draw) for draw in range(PLAN["draws"])]
        if arguments.streams:
            _print(name, own[0], arguments.data)
            continue
        for count in PLAN["images"]:
            if str(count) in found.get(name, {}):
                continue
            began = time.monotonic()
            cell = _cell(own, arguments.features, count)
            if cell is None:
                break
            found.setdefault(name, {})[str(count)] = cell
            FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{name}, {count}: {cell['accuracy']}; {time.monotonic() - began:.0f} s", flush=True)


def _cell(draws: list[Classes], features: Path, count: int) -> Mapping[str, Any] | None:
    """Return what is kept of a number of images a class; None where the set has fewer."""
    if any(len([*folder.glob("*.png")]) < count for folder in draws[0]):
        return None
    accuracy: dict[str, list[float]] = {row: [] for row in PLAN["rows"]}
    takes = []
    for classes in draws:
        hits, taken = rows_of(classes, features, count)
        takes.append(taken)
        for row, own in hits.items():
            accuracy[row].append(round(100 * float(own.double().mean()), 2))
    return {"accuracy": accuracy, "takes": takes}


def _print(name: str, classes: Classes, data: Path) -> None:
    """Link the streams of draw 0, and print what streams.toml and stream_classes.json say of them."""
    for count in NUMBERS:
        _link(classes, data / stream_of(name, count) / "0")
        limits = {"train": count, "test": PLAN["test_per_class"]}
        increment = 5 if len(classes) >= PLAN["classes"] else 2
        print(f"\n[stream.{stream_of(name, count)}]")
        print('role = "surface"')
        print(f'sets = ["{classes[0].parents[1].name.split(".")[0]}"]')
        print(f"tasks = {len(classes) // increment}\nincrement = {increment}")
        print(f"train_per_class = {count}\ntest_per_class = {PLAN['test_per_class']}")
        print(f'sha256 = ["{hash_of(classes, limits)}"]')
    told = " ".join(f"{path.parents[1].name}/{path.name[:3]}" for path in classes)
    print(json.dumps({stream_of(name, count): [told] for count in NUMBERS}))


if __name__ == "__main__":
    main()
