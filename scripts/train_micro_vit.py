r"""Train the embedded micro ViT on procedural glyph classes and write it as a safetensors file.

The training classes are disjoint from those of the glyphs benchmark (another hash namespace), and no digit is
among them. Needs torch, timm, numpy and safetensors; the evaluation on digits also needs scikit-learn.

    python scripts/train_micro_vit.py --output micro_vit.safetensors --device cuda
    python scripts/train_micro_vit.py --evaluate micro_vit.safetensors

The shipped file came from one CPU core in half an hour; the time limit ended its schedule after 4530 steps:
another machine gets weights of the same kind, not the same bits.

    python scripts/train_micro_vit.py --device cpu --classes 300 --samples 300 --steps 6000 \
        --batch 128 --lr 1e-3 --max-minutes 30
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins"))

from lw2g_benchmarks.glyph_pretraining import PRETRAINING_FAMILIES, PRETRAINING_NAMESPACE
from lw2g_benchmarks.glyph_shapes import FAMILIES, Images, render_classes

ARCHITECTURE = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4}
MEAN = STD = (0.5, 0.5, 0.5)
# More characters than anything else: they are the nearest relatives of handwriting.
CLASS_SHARES = {
    "strokes": 0.22,
    "markers": 0.14,
    "solids": 0.11,
    "gratings": 0.1,
    "dots": 0.12,
    "mosaics": 0.07,
    "outlines": 0.1,
    "rings": 0.06,
    "stamps": 0.08,
}
MAX_BYTES = 6 * 2**20
RECIPE = (
    "supervised classification of procedural glyph classes (lw2g_benchmarks.glyph_pretraining, namespace "
    "'pretraining', disjoint from the glyphs benchmark; no digits); AdamW, one-cycle cosine, label smoothing "
    "0.1, random affine, low resolution, colour jitter, inversion, noise, erasing, no flips; head removed"
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("micro_vit.safetensors"))
    parser.add_argument("--evaluate", type=Path, help="only evaluate this file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--classes", type=int, default=600)
    parser.add_argument("--samples", type=int, default=2000, help="training samples per class")
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--batch", type=int, default=1536)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--max-minutes", type=float, default=4.5, help="ends the schedule early if needed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def training_classes(total: int) -> list[tuple[str, int]]:
    """Return (family, index) of about ``total`` classes, shared out as CLASS_SHARES says."""
    return [
        (family, i) for family, share in CLASS_SHARES.items() for i in range(max(1, round(share * total)))
    ]


def render_pretraining(job: tuple[str, int, str, int, int]) -> Images:
    """Render one class (family, index, split, count, seed); runs in a worker process."""
    family, index, split, count, seed = job
    painter, size = PRETRAINING_FAMILIES[family], ARCHITECTURE["img_size"]
    return render_classes(
        painter, family, [index], split, count, namespace=PRETRAINING_NAMESPACE, seed=seed, size=size
    )


def generate(classes: list[tuple[str, int]], split: str, count: int, arguments: argparse.Namespace) -> Tensor:
    """Return the images of all classes, class by class, uint8 [classes * count, 3, S, S], on the device."""
    jobs = [(family, index, split, count, arguments.seed) for family, index in classes]
    size = ARCHITECTURE["img_size"]
    images = torch.empty(len(jobs) * count, 3, size, size, dtype=torch.uint8, device=arguments.device)
    # Spawned, not forked: the parent may hold threads of torch or CUDA.
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        for i, part in enumerate(pool.map(render_pretraining, jobs, chunksize=2)):
            images[i * count : (i + 1) * count] = torch.from_numpy(part).to(arguments.device)
    return images


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return float images in about [0, 1] after random affine, resolution, colour, noise and erasing."""
    n, size, device = len(images), images.shape[-1], images.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(n, *shape, device=device, generator=generator) * (high - low) + low

    def chosen(probability: float, like: Tensor) -> Tensor:
        return (uniform(0, 1) < probability).view(n, *[1] * (like.ndim - 1))

    x = images.float() / 255
    angle, zoom = uniform(-0.25, 0.25), uniform(0.75, 1.2)
    rows = [angle.cos() * zoom, -angle.sin() * zoom, uniform(-0.2, 0.2)]
    rows += [angle.sin() * zoom, angle.cos() * zoom, uniform(-0.2, 0.2)]
    theta = torch.stack(rows, dim=1).view(n, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    moved = F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    x = torch.where(chosen(0.8, x), moved, x)
    for low in (8, 14):
        coarse = F.interpolate(x, size=(low, low), mode="bilinear", antialias=True)
        fine = F.interpolate(coarse, size=(size, size), mode="bicubic")
        x = torch.where(chosen(0.15, x), fine, x)
    x = torch.where(chosen(0.25, x), x.mean(dim=1, keepdim=True), x)
    x = torch.where(chosen(0.15, x), 1 - x, x)
    centre = x.mean(dim=(2, 3), keepdim=True)
    x = (x - centre) * uniform(0.5, 1.5, 1, 1, 1) + centre * uniform(0.8, 1.2, 3, 1, 1)
    x = x + uniform(-0.1, 0.1, 3, 1, 1)
    noise = torch.randn(x.shape, device=device, generator=generator)
    x = x + noise * uniform(0.0, 0.08, 1, 1, 1) * chosen(0.5, x)
    return _erase(x, uniform, chosen).clamp(0, 1)


def _erase(x: Tensor, uniform: Any, chosen: Any) -> Tensor:
    """Cover a random box with a random colour in a quarter of the images."""
    size = x.shape[-1]
    axis = torch.arange(size, device=x.device)
    boxes = []
    for _ in range(2):
        extent = uniform(0.15, 0.5, 1) * size
        start = uniform(0.0, 1.0, 1) * (size - extent)
        boxes.append((axis >= start) & (axis < start + extent))
    inside = (boxes[0][:, None, :, None] & boxes[1][:, None, None, :]) & chosen(0.25, x)
    return torch.where(inside, uniform(0.0, 1.0, 3, 1, 1), x)


def normalised(x: Tensor) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (x - mean) / std


def new_model(num_classes: int) -> VisionTransformer:
    return VisionTransformer(**ARCHITECTURE, num_classes=num_classes, drop_path_rate=0.05)


def optimiser(model: VisionTransformer, arguments: argparse.Namespace) -> torch.optim.AdamW:
    matrices = [p for name, p in model.named_parameters() if p.ndim >= 2 and "embed" not in name]
    matrix_ids = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in matrix_ids]
    groups = [
        {"params": matrices, "weight_decay": arguments.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.98), fused=arguments.device != "cpu")


def learning_rate(progress: float, peak: float) -> float:
    """Return the rate at a progress in [0, 1]: linear warm-up over 5 %, then cosine to zero."""
    if progress < 0.05:
        return peak * (progress + 1e-3) / 0.051
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - 0.05) / 0.95))


def train(model: VisionTransformer, images: Tensor, count: int, arguments: argparse.Namespace) -> int:
    """Train in place; return the steps done (fewer than asked if the time limit came first)."""
    generator = torch.Generator(arguments.device).manual_seed(arguments.seed)
    steps_optimiser = optimiser(model, arguments)
    model.train()
    began, running, step = time.time(), torch.zeros(2, device=arguments.device), 0
    progress = 0.0
    while progress < 1.0:
        for group in steps_optimiser.param_groups:
            group["lr"] = learning_rate(progress, arguments.lr)
        chosen = torch.randint(len(images), (arguments.batch,), device=arguments.device, generator=generator)
        labels = chosen // count
        inputs = normalised(augment(images[chosen], generator))
        with torch.autocast(
            torch.device(arguments.device).type, dtype=torch.bfloat16, enabled=arguments.device != "cpu"
        ):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        steps_optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps_optimiser.step()
        running += torch.stack([loss.detach(), (logits.argmax(1) == labels).float().mean()])
        step += 1
        progress = max(step / arguments.steps, (time.time() - began) / (60 * arguments.max_minutes))
        if step % 100 == 0 or progress >= 1.0:
            mean = (running / (step % 100 or 100)).tolist()
            running.zero_()
            seconds = time.time() - began
            print(f"step {step} loss {mean[0]:.3f} accuracy {mean[1]:.3f} {seconds:.0f} s", flush=True)
    return step


@torch.inference_mode()
def features(model: VisionTransformer, images: Tensor, device: str) -> Tensor:
    """Return CLS features after the final norm, float32 [n, width], on the CPU."""
    parts = []
    for part in torch.split(images, 512):
        x = normalised(part.to(device).float() / 255)
        parts.append(model.forward_head(model.forward_features(x), pre_logits=True).float().cpu())
    return torch.cat(parts)


def nearest_mean_accuracy(train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor) -> Tensor:
    """Return which test samples are nearest (by cosine) to the mean of their own class, bool [n]."""
    means = torch.stack([train_x[train_y == c].mean(0) for c in range(int(train_y.max()) + 1)])
    similarity = F.normalize(test_x, dim=1) @ F.normalize(means, dim=1).T
    return similarity.argmax(1) == test_y


def report_glyphs(model: VisionTransformer, device: str) -> dict[str, float]:
    """Print and return nearest-class-mean accuracies on the glyphs benchmark (100 classes together)."""
    size, per_family, data = ARCHITECTURE["img_size"], 20, {}
    for split, count in (("train", 40), ("test", 20)):
        parts = [
            render_classes(
                painter, family, range(per_family), split, count, namespace="benchmark", seed=0, size=size
            )
            for family, painter in FAMILIES.items()
        ]
        data[split] = (
            torch.from_numpy(np.concatenate(parts)),
            torch.arange(len(FAMILIES) * per_family).repeat_interleave(count),
        )
    (train_x, train_y), (test_x, test_y) = data["train"], data["test"]
    deep = nearest_mean_accuracy(
        features(model, train_x, device), train_y, features(model, test_x, device), test_y
    )
    pixels = [normalised(x.float() / 255).flatten(1) for x in (train_x, test_x)]
    raw = nearest_mean_accuracy(pixels[0], train_y, pixels[1], test_y)
    for i, family in enumerate(FAMILIES):
        rows = test_y // per_family == i
        print(f"  {family}: features {deep[rows].float().mean():.3f} pixels {raw[rows].float().mean():.3f}")
    accuracy = {"glyphs": deep.float().mean().item(), "glyphs_pixels": raw.float().mean().item()}
    print(f"glyphs, 100 classes: features {accuracy['glyphs']:.3f} pixels {accuracy['glyphs_pixels']:.3f}")
    return accuracy


def report_digits(model: VisionTransformer, device: str) -> dict[str, float]:
    """Print and return nearest-class-mean accuracies on digits, or nothing where scikit-learn is missing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("digits: skipped, scikit-learn is not installed; run --evaluate elsewhere")
        return {}
    data = load_digits()
    small = torch.from_numpy(data.images).float()[:, None].repeat(1, 3, 1, 1) * (255 / 16)
    size = ARCHITECTURE["img_size"]
    images = F.interpolate(small, size=(size, size), mode="bicubic").clamp(0, 255).byte()
    labels = torch.from_numpy(data.target).long()
    test = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        test[torch.nonzero(labels == digit).flatten()[4::5]] = True
    result = {}
    for name, x in (("digits", features(model, images, device)), ("digits_pixels", small.flatten(1))):
        hits = nearest_mean_accuracy(x[~test], labels[~test], x[test], labels[test])
        result[name] = hits.float().mean().item()
    print(f"digits: features {result['digits']:.3f} pixels {result['digits_pixels']:.3f}")
    return result


@torch.inference_mode()
def held_out_accuracy(model: VisionTransformer, images: Tensor, count: int) -> float:
    """Return the accuracy of the head on new samples of the training classes."""
    hits = [model(normalised(part.float() / 255)).argmax(1).cpu() for part in torch.split(images, 1024)]
    labels = torch.arange(len(images)) // count
    return (torch.cat(hits) == labels).float().mean().item()


def save(
    model: VisionTransformer, accuracy: dict[str, float], steps: int, arguments: argparse.Namespace
) -> None:
    """Write the weights without the head, float32, with metadata."""
    state = {
        name: value.detach().float().cpu().contiguous()
        for name, value in model.state_dict().items()
        if not name.startswith("head.")
    }
    options = {
        k: getattr(arguments, k) for k in ("classes", "samples", "batch", "lr", "weight_decay", "seed")
    }
    metadata = {
        "format": "pt",
        "architecture": json.dumps(ARCHITECTURE),
        "mean": json.dumps(MEAN),
        "std": json.dumps(STD),
        "recipe": RECIPE,
        "options": json.dumps({**options, "steps": steps}),
        "accuracy": json.dumps({k: round(v, 4) for k, v in accuracy.items()}),
    }
    save_file(state, arguments.output, metadata=metadata)
    size = arguments.output.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{arguments.output} has {size} bytes, more than {MAX_BYTES}")
    print(f"wrote {arguments.output}: {size} bytes, {len(state)} tensors")


def evaluate_file(path: Path, device: str) -> None:
    model = VisionTransformer(**ARCHITECTURE, num_classes=0)
    model.load_state_dict(load_file(path))
    model.eval().to(device)
    with safe_open(path, "pt") as file:
        print(json.dumps(file.metadata(), indent=1))
    report_glyphs(model, device)
    report_digits(model, device)


def main() -> None:
    arguments = parse_arguments()
    if arguments.evaluate:
        evaluate_file(arguments.evaluate, arguments.device)
        return
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    classes = training_classes(arguments.classes)
    began = time.time()
    images = generate(classes, "train", arguments.samples, arguments)
    held_out = generate(classes, "test", 20, arguments)
    print(f"{len(classes)} classes, {len(images)} images rendered in {time.time() - began:.0f} s", flush=True)
    model = new_model(len(classes)).to(arguments.device)
    steps = train(model, images, arguments.samples, arguments)
    model.eval()
    accuracy = {"held_out": held_out_accuracy(model, held_out, 20)}
    print(f"held-out samples of the {len(classes)} training classes: {accuracy['held_out']:.3f}")
    accuracy |= report_glyphs(model, arguments.device)
    accuracy |= report_digits(model, arguments.device)
    save(model, accuracy, steps, arguments)
    print(f"total {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
