"""What `lw2g start` and `learn` cost, and what `--reject` is worth on real images.

    python benchmarks/learning.py time [--images 50] [--json OUT.json]
    python benchmarks/learning.py steps [--json OUT.json]
    python benchmarks/learning.py start PHOTOS WEIGHTS [--rounds 3] [--json OUT.json]
    python benchmarks/learning.py reject CIFAR CALTECH WEIGHTS [--size 224] [--json OUT.json]

`time` teaches one class of noise images to models on random weights, and prints processor seconds of this
process: with ViT-Tiny at 96 pixels and with ViT-S/16 at 224. `steps` teaches one class of five images to
models that have learned 50 and 400 classes in as many steps: where time is in proportion to the steps, the
ratio is at most 8. `start` makes models of photos in CLASS folders with the weights of a ViT-Tiny, in turn
with a head that is named and with one that is chosen, and prints user seconds of each process, of which the
least are compared. `reject` takes two folders of train/CLASS/*
and test/CLASS/*, and the weights of a ViT-Tiny: a model of 20 of the first folder's classes (40 images
each) is shown 200 test images of these classes, 200 of 20 other classes (near), and 200 of the second
folder (far).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import lw2g
from lw2g.model.exported import read_export, write_export
from lw2g.model.exporting import lasting_tensors
from lw2g.model.live import live_model
from lw2g.model.solved import solved_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_photos.steps import grown

_MODELS = (
    ("ViT-Tiny at 96 px", "vit_tiny_patch16_224.augreg_in21k_ft_in1k", 96),
    ("ViT-S/16 at 224 px", "vit_small_patch16_224.augreg_in21k_ft_in1k", 224),
)


def noise(folder: Path, count: int, seed: int) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    for place in range(count):
        pixels = draw.integers(0, 255, (256, 256, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")


def times(images: int) -> dict[str, float]:
    found = {}
    for title, name, size in _MODELS:
        with tempfile.TemporaryDirectory() as made:
            root = Path(made)
            torch.manual_seed(0)
            weights = root / "weights.safetensors"
            vit = timm.create_model(name, pretrained=False)
            torch.nn.init.normal_(vit.norm.weight, 1, 0.1)  # untrained weights would be refused
            save_file(vit.state_dict(), weights)
            for place in range(4):
                noise(root / "first" / f"class {place}", 10, place)
            noise(root / "new" / "one more", images, 9)
            options: dict[str, Any] = {"backbone": name, "weights": weights, "image_size": size}
            lw2g.start(root / "first", root / "model", device="cpu", **options)
            began = time.process_time()
            lw2g.learn(root / "model", root / "new", device="cpu")
            seconds = time.process_time() - began
            title += f", {json.loads((root / 'model/model.json').read_text())['run']['precision']}"
            found[title] = seconds
        print(f"{found[title]:8.1f} s for {images} images, {title}", flush=True)
    return found


def taught(model: Path, out: Path, steps: int) -> None:
    """Write a model with so many steps more, of a class of five random features each."""
    catalogue = load_catalogue()
    saved = read_export(model, whole=True)
    before = saved.manifest
    learned = dict(saved.learned)
    draw = torch.Generator().manual_seed(0)
    width = learned["features/0/0"].shape[1]
    rows = []
    more = saved
    done = before.history.steps
    for number in range(steps):
        name = f"class {number}"
        rows.append(0.3 * torch.randn(5, width, generator=draw))
        learned[f"features/{len(done)}/0"] = rows[-1]
        done = [*done, attrs.evolve(done[-1], classes=[name], images=[5])]
        manifest = grown(more, {name: 5}).manifest
        manifest = attrs.evolve(manifest, learning=attrs.evolve(manifest.history, steps=done))
        more = attrs.evolve(more, manifest=manifest)
    made = live_model(more, catalogue, device="cpu", tasks=len(before.tasks))
    labels = torch.arange(steps).repeat_interleave(5) + before.infos[-1].seen
    solved_of(made.parts).update(torch.cat(rows), labels)
    write_export(attrs.evolve(more, tensors=lasting_tensors(made.parts), learned=learned), out)


def steps() -> dict[str, float]:
    found = {}
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for place in range(2):
            noise(root / "first" / f"first {place}", 20, place)
        noise(root / "second" / "second", 5, 8)
        noise(root / "new" / "one more", 5, 9)
        lw2g.start(root / "first", root / "start", backbone="micro", device="cpu")
        lw2g.learn(root / "start", root / "second", out=root / "model", device="cpu")
        for count in (50, 400):
            taught(root / "model", root / str(count), count)
            seconds = []
            for turn in range(4):  # the first one warms up
                began = time.process_time()
                lw2g.learn(root / str(count), root / "new", out=root / f"{count}-{turn}", device="cpu")
                seconds.append(time.process_time() - began)
            found[f"{count} steps"] = min(seconds[1:])
            print(f"{found[f'{count} steps']:8.3f} s after {count} steps", flush=True)
    found["ratio"] = found["400 steps"] / found["50 steps"]
    print(f"{found['ratio']:8.2f} 400 steps / 50 steps", flush=True)
    return found


def starts(photos: Path, weights: Path, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"lda": [], "auto": []}
    for _ in range(rounds):
        for head, seconds in found.items():
            with tempfile.TemporaryDirectory() as made:
                command = [sys.executable, "-m", "lw2g", "start", str(photos), f"{made}/model"]
                command += ["--backbone", "vit-tiny", "--weights", str(weights), "--head", head]
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                subprocess.run([*command, "--device", "cpu", "--json"], check=True, capture_output=True)
                seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
            print(f"{seconds[-1]:8.2f} s with --head {head}", flush=True)
    found["ratio"] = min(found["auto"]) / min(found["lda"])
    print(f"{found['ratio']:8.2f} auto / lda", flush=True)
    return found


def area(known: list[float], unknown: list[float]) -> float:
    """The chance that a known image scores above an unknown one, in percent."""
    one, other = np.array(known)[:, None], np.array(unknown)
    return 100 * float(((one > other) + 0.5 * (one == other)).mean())


def chosen(root: Path, classes: slice, images: slice) -> list[tuple[Path, str]]:
    folders = sorted(path for path in root.iterdir() if path.is_dir())[classes]
    return [(path, folder.name) for folder in folders for path in sorted(folder.iterdir())[images]]


def rejecting(cifar: Path, caltech: Path, weights: Path, size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for path, name in chosen(cifar / "train", slice(0, 100, 5), slice(0, 40)):
            (root / "first" / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / "first" / name)
        options: dict[str, Any] = {"backbone": "vit-tiny", "weights": weights, "image_size": size}
        model, report = lw2g.start(root / "first", root / "model", head="lda", device="cpu", **options)
        sets = {
            "known": chosen(cifar / "test", slice(0, 100, 5), slice(0, 10)),
            "near": chosen(cifar / "test", slice(2, 100, 5), slice(0, 10)),
            "far": chosen(caltech / "test", slice(0, 100, 5), slice(0, 10)),
        }
        rows = {
            name: model.predict([path for path, _ in images], reject=0.05) for name, images in sets.items()
        }
        with torch.no_grad():
            plain = {
                name: model([path for path, _ in images]).softmax(1).amax(1).tolist()
                for name, images in sets.items()
            }
    right = [row["best"] == name for row, (_, name) in zip(rows["known"], sets["known"], strict=True)]
    score, best = (
        {name: [row[key] for row in of] for name, of in rows.items()} for key in ("score", "probability")
    )
    found: dict[str, Any] = {
        "images": {name: len(images) for name, images in sets.items()},
        "accuracy": 100 * float(np.mean(right)),
        "temperature": report["temperature"],
        "ece left out": report["ece"],
        "ece test": ece(best["known"], right),
        "ece test, without temperature": ece(plain["known"], right),
    }
    for kind in ("near", "far"):
        found[f"AUROC {kind}, relative Mahalanobis"] = area(score["known"], score[kind])
        found[f"AUROC {kind}, max softmax"] = area(plain["known"], plain[kind])
        found[f"AUROC {kind}, max softmax at the temperature"] = area(best["known"], best[kind])
    for kind in sets:
        found[f"rejected at 0.05, {kind}"] = 100 * float(np.mean([row["rejected"] for row in rows[kind]]))
    for name, value in found.items():
        print(f"{value if isinstance(value, dict) else round(value, 2)}  {name}", flush=True)
    return found


def ece(probability: list[float], right: list[bool]) -> float:
    from lw2g.model.rejection import expected_error

    return 100 * expected_error(torch.tensor(probability), torch.tensor(right))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("time", "steps", "start", "reject"))
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any]
    if asked.what == "time":
        found = times(asked.images)
    elif asked.what == "steps":
        found = steps()
    elif asked.what == "start":
        found = starts(*asked.paths, asked.rounds)
    else:
        found = rejecting(*asked.paths, asked.size)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
