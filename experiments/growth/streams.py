"""The streams on which decisions are compared: which classes arrive when, and what a person would group.

Folders are ``DATA/cifar100``, ``DATA/caltech`` and ``DATA/pacs``, each with ``{train,test}/NUMBER_CLASS``,
trees as ``maple`` or as ``maple_tree``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["STREAMS", "Stream", "behaviour"]

# superclasses of CIFAR-100 (Krizhevsky 2009) by what a person would call alike
KINDS: Mapping[str, Mapping[str, str]] = {
    "animals": {
        "aquatic mammals": "beaver dolphin otter seal whale",
        "fish": "aquarium_fish flatfish ray shark trout",
        "large carnivores": "bear leopard lion tiger wolf",
        "large omnivores and herbivores": "camel cattle chimpanzee elephant kangaroo",
        "medium mammals": "fox porcupine possum raccoon skunk",
        "reptiles": "crocodile dinosaur lizard snake turtle",
        "small mammals": "hamster mouse rabbit shrew squirrel",
    },
    "plants": {
        "flowers": "orchid poppy rose sunflower tulip",
        "fruit and vegetables": "apple mushroom orange pear sweet_pepper",
        "trees": "maple oak palm pine willow",
    },
    "household": {
        "food containers": "bottle bowl can cup plate",
        "electrical devices": "clock keyboard lamp telephone television",
        "furniture": "bed chair couch table wardrobe",
    },
    "vehicles": {
        "vehicles 1": "bicycle bus motorcycle pickup_truck train",
        "vehicles 2": "lawn_mower rocket streetcar tank tractor",
    },
    "scenes": {
        "large man-made outdoor things": "bridge castle house road skyscraper",
        "large natural outdoor scenes": "cloud forest mountain plain sea",
    },
}


@attrs.frozen(kw_only=True)
class Stream:
    """One order of tasks.

    Attributes:
        options: What makes the benchmark so, by dotted keys.
        groups: The set of each task as a person would choose it, new ones in turn; empty where nobody can.
        tasks: How many there are.
    """

    options: Mapping[str, Any]
    groups: tuple[int, ...]
    tasks: int


def _folders(root: Path) -> dict[str, str]:
    """Return the folder of each class of an unpacked data set by the class's name."""
    names = (path.name for path in sorted((root / "train").iterdir()))
    return {name.partition("_")[2].removesuffix("_tree"): name for name in names}


def _numbered(kinds: list[str]) -> tuple[int, ...]:
    return tuple(list(dict.fromkeys(kinds)).index(kind) for kind in kinds)


def natural(data: Path, seed: int) -> Stream:
    """CIFAR-100 in 10 tasks of 10 in alphabetical order, whatever the seed: nothing recurs by design."""
    return Stream(
        options={"benchmark.root": str(data / "cifar100"), "benchmark.increment": 10}, groups=(), tasks=10
    )


def groups(data: Path, seed: int) -> Stream:
    """CIFAR-100 superclasses, two of each of five kinds, in an order drawn by the seed: likes recur."""
    draw, known = random.Random(seed), _folders(data / "cifar100")
    tasks = [
        (kind, names.split())
        for kind, classes in KINDS.items()
        for names in draw.sample(list(classes.values()), 2)
    ]
    draw.shuffle(tasks)
    order = [known[name] for _, names in tasks for name in names]
    options = {
        "benchmark.root": str(data / "cifar100"),
        "benchmark.increment": 5,
        "benchmark.class_order": order,
    }
    return Stream(options=options, groups=_numbered([kind for kind, _ in tasks]), tasks=len(tasks))


def mixed(data: Path, seed: int) -> Stream:
    """Seven classes of CIFAR-100, a domain of PACS, seven classes of Caltech-101, four times each in turn."""
    draw = random.Random(seed)
    cifar, caltech = (list(_folders(data / name).values()) for name in ("cifar100", "caltech"))
    pacs = list(_folders(data / "pacs").values())
    domains = [pacs[first : first + 7] for first in range(0, len(pacs), 7)]
    draw.shuffle(cifar), draw.shuffle(caltech), draw.shuffle(domains)
    parts = {
        "cifar": [cifar[7 * turn : 7 * turn + 7] for turn in range(4)],
        "pacs": domains,
        "caltech": [caltech[7 * turn : 7 * turn + 7] for turn in range(4)],
    }
    tasks = [(kind, parts[kind][turn]) for turn in range(4) for kind in parts]
    options = {
        "benchmark.root": str(data / "cifar100"),
        "benchmark.more_roots": [str(data / "pacs"), str(data / "caltech")],
        "benchmark.increment": 7,
        "benchmark.class_order": [name for _, names in tasks for name in names],
    }
    return Stream(options=options, groups=_numbered([kind for kind, _ in tasks]), tasks=len(tasks))


STREAMS: Mapping[str, Callable[[Path, int], Stream]] = {"natural": natural, "groups": groups, "mixed": mixed}


def behaviour(tasks: int, seed: int) -> tuple[int, ...]:
    """Return a history that no measure has made: each task grows or goes to a live set, half and half.

    So age, tasks and rank of the sets vary on their own (a run's own rule would tie them to its measure).
    """
    draw, sets = random.Random(f"history {seed}"), [0]
    for _ in range(1, tasks):
        sets.append(max(sets) + 1 if draw.random() < 0.5 else draw.randrange(max(sets) + 1))
    return tuple(sets)
