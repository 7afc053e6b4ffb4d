"""Real runs: CIFAR-100 in ten tasks on the pre-trained ViT-Tiny at 224 pixels, stopped and gone on with."""

from __future__ import annotations

import io
import json
import shutil
import signal
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from PIL import Image

from gpu.lab import Lab, Measurement, Skipped
from lw2g.config.resolve import Resolved, resolve
from lw2g.disk.record import RunDirectory
from lw2g.interfaces.tracker import Event
from lw2g.lifecycle.runner import resume, start
from lw2g.runtime.progress import Interrupted

RUNS = (
    ("hide-prompt", "min"),
    ("dual-prompt", "min"),
    ("hide-prompt", "always"),
    ("dual-prompt", "always"),
)
EPOCHS, PER_CLASS, KEPT = 5, 250, 20.0


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the runs.

    Raises:
        Skipped: Data or weights are not given.
    """
    if lab.given.cifar is None:
        raise Skipped("no data; give CIFAR-100 by --cifar")
    if lab.given.weights is None and not lab.toy:
        raise Skipped("no weights; give those of vit_tiny_patch16_224 by --weights")
    for baseline, policy in RUNS[:1] if lab.toy else RUNS:
        yield f"{baseline} x {policy}", partial(_run, lab, baseline, policy)


@attrs.define
class _Watch:
    """Stops the run, as Ctrl-C does, when too little time is left."""

    lab: Lab
    asked: bool = False

    def on_event(self, event: Event) -> None:
        if not self.asked and self.lab.seconds_left() < (0 if self.lab.toy else KEPT):
            self.asked = True  # once more would stop at once
            signal.raise_signal(signal.SIGINT)

    def close(self) -> None:
        """Nothing to close."""


def _run(lab: Lab, baseline: str, policy: str) -> dict[str, Any]:
    directory = lab.out / f"real-{baseline}-{policy}"
    try:
        if RunDirectory(directory).exists():
            record = resume(directory, lab.catalogue, [_Watch(lab)])
        else:
            record = start(_resolved(lab, baseline, policy), lab.catalogue, directory, [_Watch(lab)])
    except Interrupted:
        return {"unfinished": True}
    metrics = {name: record["metrics"].get(name) for name in ("faa", "ffm", "pra", "ssp")}
    seconds = {name: round(value, 1) for name, value in record["seconds"].items()}
    speed = record["images_per_second"]
    return {**metrics, "task_to_set": record["task_to_set"], "seconds": seconds, "images_per_second": speed}


def _resolved(lab: Lab, baseline: str, policy: str) -> Resolved:
    options: dict[str, Any] = {"benchmark.root": str(_trees(lab)), "run.precision": "bf16-mixed"}
    if lab.toy:
        return lab.resolve(
            baseline, policy, options | {"benchmark.increment": 2}, benchmark="folder", backbone="micro"
        )
    half = (0.5, 0.5, 0.5)
    options |= {"backbone.model": "vit_tiny_patch16_224", "backbone.mean": half, "backbone.std": half}
    options |= {"backbone.weights": str(lab.given.weights.resolve()), "benchmark.train_per_class": PER_CLASS}
    options |= {"baseline.epochs": EPOCHS, "run.evaluation_batch": 256, "run.workers": 12}
    options |= {"run.device": str(lab.device)}
    # all else, constraints included, as a user gets it
    return resolve(
        lab.catalogue,
        overrides=options,
        baseline=baseline,
        policy=policy,
        benchmark="folder",
        backbone="timm",
    )


def _trees(lab: Lab) -> Path:
    """Return the folder of train/ and test/, unpacked from zip sheets where that is what is given."""
    given: Path = lab.given.cifar.resolve()
    if (given / "train").is_dir():
        return given
    sheets = sorted(given.glob("cifar100*.zip"))
    if not sheets:
        raise Skipped(f"{str(given)!r} holds neither train/ nor cifar100*.zip")
    made = lab.out.resolve() / "cifar100"
    if not made.exists():
        lab.say(f"unpacking {len(sheets)} sheets ...")
        part = made.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        about = json.loads((given / "cifar100.json").read_text(encoding="utf-8"))
        names = [(path, name) for path in sheets for name in zipfile.ZipFile(path).namelist()]
        with ProcessPoolExecutor(max_workers=1 if lab.toy else None) as pool:
            for _ in pool.map(partial(_unpack, about, part), *zip(*names, strict=True)):
                pass
        part.rename(made)
    return made


def _unpack(about: dict[str, Any], folder: Path, sheet: Path, name: str) -> None:
    """Write the images of one class: a sheet is their grid, row by row, zeros at its end."""
    split, stem = name.split("/")[0], Path(name).stem
    with zipfile.ZipFile(sheet) as archive:
        grid = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
    size, (height, width) = about["size"], grid.shape[:2]
    images = grid.reshape(height // size, size, width // size, size, 3).swapaxes(1, 2)
    images = images.reshape(-1, size, size, 3)[: about["counts"][split][int(stem[:3])]]
    (folder / split / stem).mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / split / stem / f"{number:04d}.png", compress_level=1)
