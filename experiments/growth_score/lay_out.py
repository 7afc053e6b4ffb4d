"""Lay out the tasks of the study as folders of images.

    python experiments/carries/lay_out.py --data ARCHIVES --out DATA
    python experiments/growth_score/lay_out.py --data DATA

The first command unpacks the sets and lays out `turns-small`. Written are ``DATA/kinds``, a neutral task and
six tasks of each kind in hypotheses.toml, each of three classes of 72 images in all, and
``DATA/pacs-turns/FIRST/SEED``, two tasks of sketches and two of photographs in turn.
"""

from __future__ import annotations

import argparse
import random
import tomllib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from lw2g_benchmarks.glyph_shapes import FAMILIES, render_classes
from lw2g_benchmarks.glyphs import NAMESPACE

PLAN = Path(__file__).with_name("hypotheses.toml")
PER_CLASS = 24
"""Images of a class of a task."""
SETS = {"cifar": "cifar100", "caltech": "caltech100_128", "neutral": "tinyimagenet200_64"}
DOMAINS = {"photo": "photo", "art": "art_painting", "cartoon": "cartoon", "sketch": "sketch"}
MOST = {"cifar": 50}
"""Classes of a set that may be drawn, the first ones by alphabet: those of development streams."""
SEEDS = 5
TASKS = ((0, 3), (3, 6))
"""Which of a seed's objects the first and the second task of a domain have."""


def folders(images: Path, name: str) -> list[Path]:
    """Return the folders of a set's classes below ``train``, in order."""
    return sorted((images / name / "train").iterdir())


def images_of(folder: Path) -> list[Path]:
    """Return all images of a class, those of the test split behind."""
    other = folder.parents[1] / "test" / folder.name
    return [*sorted(folder.glob("*.png")), *sorted(other.glob("*.png"))]


def drawn_here(out: Path) -> dict[str, list[list[Path]]]:
    """Write glyphs and digits as files, and return the images of their classes."""
    found: dict[str, list[list[Path]]] = {"glyphs": [], "digits": []}
    for family, painter in FAMILIES.items():
        made = render_classes(
            painter, family, range(8), "train", PER_CLASS, namespace=NAMESPACE, seed=0, size=32
        )
        for number, pixels in enumerate(made.reshape(-1, PER_CLASS, *made.shape[1:])):
            found["glyphs"].append(written(out / "glyphs" / f"{family}-{number}", pixels))
    digits = load_digits()
    grey = (np.asarray(digits.images).astype(np.int64) * 255 + 8) // 16
    for digit in range(10):
        own = grey[digits.target == digit].astype(np.uint8)
        pixels = np.repeat(own[:, None], 3, axis=1)
        found["digits"].append(written(out / "digits" / str(digit), pixels))
    return found


def written(folder: Path, pixels: np.ndarray) -> list[Path]:
    """Write images ``[n, 3, h, w]`` as files, and return these."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, image in enumerate(pixels):
        path = folder / f"{number:03d}.png"
        if not path.exists():
            Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(path)
        paths.append(path)
    return paths


def classes_of(images: Path, own: Mapping[str, list[list[Path]]], kind: str) -> list[list[Path]]:
    """Return the images of each class of a kind."""
    if kind in own:
        return own[kind]
    if kind in DOMAINS:
        found = [path for path in folders(images, "pacs_128") if path.name[4:].startswith(DOMAINS[kind])]
    else:
        found = folders(images, SETS[kind])[: MOST.get(kind)]
    return [images_of(path) for path in found]


def tasks_of(classes: Sequence[Sequence[Path]], kind: str, draws: int, size: int) -> list[list[list[Path]]]:
    """Return the images of the classes of each task; a class that comes again has other images."""
    order = random.Random(kind).sample(range(len(classes)), len(classes))
    turns = iter(number for _ in range(draws * size) for number in order)
    used = dict.fromkeys(order, 0)
    tasks = []
    for _ in range(draws):
        task = []
        for number in islice(turns, size):
            start = used[number]
            used[number] += PER_CLASS
            chosen = list(classes[number][start : start + PER_CLASS])
            if len(chosen) < PER_CLASS:
                raise SystemExit(f"{kind}: class {number} has too few images for all of its tasks")
            task.append(chosen)
        tasks.append(task)
    return tasks


def link(paths: Sequence[Path], folder: Path) -> None:
    """Link images into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths):
        at = folder / f"{number:03d}{path.suffix}"
        if not at.is_symlink():
            at.symlink_to(path.resolve())


def lay_out_kinds(data: Path, plan: Mapping[str, object]) -> None:
    """Link the neutral task, then the tasks of all kinds, draw by draw."""
    kinds, draws, size = plan["kinds"], plan["draws"], plan["classes"]
    own = drawn_here(data / "images")
    by_kind = {
        kind: tasks_of(classes_of(data / "images", own, kind), kind, draws, size)
        for kind in ("neutral", *kinds)
    }
    tasks = [by_kind["neutral"][0]]
    for draw in range(draws):
        tasks += [by_kind[kind][draw] for kind in kinds]
    for number, task in enumerate(tasks):
        for place, paths in enumerate(task):
            name = f"{number * size + place:03d}_{number}-{place}"
            link(paths, data / "kinds" / "train" / name)
            # a stream has test images, none of which it trains on; nothing is tested
            noise = np.random.default_rng([number, place]).integers(0, 256, (1, 3, 32, 32), dtype=np.uint8)
            written(data / "kinds" / "test" / name, noise)


def lay_out_pacs(data: Path) -> None:
    """Link the streams of sketches and photographs in turn."""
    pacs = folders(data / "images", "pacs_128")
    objects = sorted({path.name.rpartition("-")[2] for path in pacs})
    by_name = {path.name[4:]: path for path in pacs}
    for seed in range(SEEDS):
        drawn = random.Random(f"pacs-turns {seed}").sample(objects, len(objects))
        for first, second in (("sketch", "photo"), ("photo", "sketch")):
            number = 0
            for start, end in TASKS:
                for domain in (first, second):
                    for name in drawn[start:end]:
                        source = by_name[f"{domain}-{name}"]
                        for split in ("train", "test"):
                            at = data / "pacs-turns" / first / str(seed) / split
                            at = at / f"{number:02d}_{domain}-{name}"
                            at.parent.mkdir(parents=True, exist_ok=True)
                            if not at.is_symlink():
                                at.symlink_to((source.parents[1] / split / source.name).resolve())
                        number += 1


def main() -> None:
    """Lay out both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the unpacked sets")
    data = parser.parse_args().data
    lay_out_kinds(data, tomllib.loads(PLAN.read_text(encoding="utf-8"))["tables"])
    lay_out_pacs(data)


if __name__ == "__main__":
    main()
