"""A training step of LAMDA-PILOT or Mammoth against lw2g's on equal work, one CPU thread.

    python benchmarks/rivals.py CHECKOUT [--methods dual-prompt,coda-prompt,ranpac] [--batch N]

``CHECKOUT`` is a copy of https://github.com/sun-hailong/LAMDA-PILOT or https://github.com/aimagelab/mammoth
(dual-prompt and coda-prompt alone), fetched by the user. Their own training code takes the steps: forward of
the frozen copy for the query, forward, backward, optimizer. Both sides have a ViT-Tiny with random weights
and images that lie in memory; batches are PILOT's published ones. What stands in for their environment: timm
before 1.0 (a ViT is built directly), ImageNet weights, widths of 768 that their code names, and Mammoth's
data set. Theirs is float32, as their code is. *Known* is lw2g with un-prompted queries computed once, as in
any epoch but the first; their code computes them anew in every epoch.

Processor time of the process; sides take turns, and a ratio is of two neighbours.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import timm
import torch
from torch import Tensor, nn
from training import Known, Resident, Work, ours

from lw2g.runtime.engine import BF16, FP32
from lw2g_testing.tiny import tiny_catalogue

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from gpu.components import LabPlugin

DIM, HEADS, CLASSES = 192, 3, 10
TINY = {"embed_dim": DIM, "num_heads": HEADS}
BATCHES = {"dual-prompt": 24, "coda-prompt": 128, "ranpac": 48}


_ABSENT = """kornia kornia.augmentation kornia.augmentation.container kornia.constants
kornia.augmentation.container.params setproctitle wandb datasets datasets.utils
datasets.utils.continual_dataset utils.kornia_utils"""
"""Modules that Mammoth imports and a training step does not need."""


class Loader:
    """Batches in memory, as their loops take them; notes the processor time before each."""

    def __init__(self, size: int, batch: int, steps: int) -> None:
        self._batch = torch.arange(batch), torch.randn(batch, 3, size, size), torch.arange(batch) % CLASSES
        self._steps, self.marks = steps, list[float]()

    def __len__(self) -> int:
        return self._steps + 1

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        self.marks = []
        for _ in range(len(self)):
            self.marks.append(time.process_time())
            yield self._batch
        self.marks.append(time.process_time())

    def taken(self) -> list[float]:
        """Return the seconds of all steps of the last epoch but the first."""
        return [end - begin for begin, end in itertools.pairwise(self.marks[1:])]


def tiny_in(module: ModuleType, size: int) -> None:
    """Let a module of theirs build its ViT directly, as wide as a ViT-Tiny and without weights."""
    theirs = module.VisionTransformer

    def build(*_: Any, **options: Any) -> nn.Module:
        for name in ("pretrained", "pretrained_cfg", "drop_block_rate", "base_class", "filter_fn"):
            options.pop(name, None)
        return theirs(**(options | TINY | {"img_size": size}))  # type: ignore[no-any-return]

    module.VisionTransformer = build  # type: ignore[attr-defined]
    module._create_vision_transformer = build  # type: ignore[attr-defined]


def _copied() -> SimpleNamespace:
    """Return torch with zeros that are no leaves: their code adds to the copy that moving to a GPU makes."""
    given = {key: getattr(torch, key) for key in dir(torch)}
    given["zeros"] = lambda *size, **options: torch.zeros(*size, **options).clone()
    return SimpleNamespace(**given)


def pilot(root: Path, method: str, size: int, batch: int, steps: int) -> Work:
    """Return the seconds of steps of PILOT's learner of a first task."""
    for part in ("", ".weight_init", ".helpers"):  # where they lay before timm 1.0
        sys.modules[f"timm.models.layers{part}"] = importlib.import_module(f"timm.layers{part}")
    name = method.replace("dual-prompt", "dualprompt").replace("-", "_")
    found = json.loads((root / "exps" / f"{name}.json").read_text())
    given = found | {
        "nb_classes": 100,
        "nb_tasks": 10,
        "device": ["cpu"],
        "pretrained": False,
        "tuned_epoch": 1,
    }
    nets = importlib.import_module("utils.inc_net")
    if method == "ranpac":
        adapter = importlib.import_module("backbone.vit_adapter")
        tuning = SimpleNamespace(
            ffn_adapt=True, ffn_option="parallel", ffn_adapter_layernorm_option="none", d_model=DIM,
            ffn_adapter_init_option="lora", ffn_adapter_scalar="0.1", ffn_num=given["ffn_num"], vpt_on=False,
            vpt_num=0,
        )  # fmt: skip
        vit = adapter.VisionTransformer(
            img_size=size, patch_size=16, depth=12, mlp_ratio=4, qkv_bias=True, num_classes=0,
            global_pool=False, drop_path_rate=0.0, tuning_config=tuning, **TINY,
        )  # fmt: skip
        for key, value in vit.named_parameters():
            value.requires_grad_("adaptmlp" in key)
        vit.out_dim = DIM
        stand_in = mock.patch.object(nets, "get_backbone", return_value=vit)
    else:
        module = importlib.import_module(
            f"backbone.vit_{'coda_promtpt' if method == 'coda-prompt' else 'dualprompt'}"
        )
        tiny_in(module, size)
        build = getattr(module, given["backbone_type"])
        timm.create_model = lambda _, pretrained=False, **options: build(**options)
        coda = nets.CodaPrompt
        stand_in = mock.patch.object(nets, "CodaPrompt", lambda _, *options: coda(DIM, *options, key_dim=DIM))
        if method == "coda-prompt":
            module.torch = _copied()
    with stand_in:
        learner = importlib.import_module(f"models.{name}").Learner(given)
    network = learner._network
    if method == "coda-prompt":
        network.fc = nn.Linear(DIM, 100)
        learner._total_classes = CLASSES
        learner.data_weighting()
    elif method == "ranpac":
        network.update_fc(CLASSES)
    learner._cur_task, learner._total_classes = 0, CLASSES
    trained = [value for value in network.parameters() if value.requires_grad]
    if method == "coda-prompt":
        trained = [*network.prompt.parameters(), *network.fc.parameters()]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    loader = Loader(size, batch, steps)

    def work() -> list[float]:
        learner._init_train(loader, Loader(size, 1, 0), optimizer, schedule)  # it may test
        return loader.taken()

    return work


def mammoth(root: Path, method: str, size: int, batch: int, steps: int) -> Work:
    """Return the seconds of steps of Mammoth's ``observe`` in a first task."""
    name = method.replace("dual-prompt", "dualprompt").replace("-", "_")
    for absent in _ABSENT.split():
        sys.modules[absent] = mock.MagicMock()
    where = {"dualprompt": "vision_transformer", "coda_prompt": "vit"}[name]
    vits = importlib.import_module(f"models.{name}_utils.{where}")
    tiny_in(vits, size)
    vits.create_vision_transformer = vits.VisionTransformer
    method_module, parts = (importlib.import_module(f"models.{name}{end}") for end in ("", "_utils.model"))
    theirs = getattr(method_module, {"dualprompt": "DualPrompt", "coda_prompt": "CodaPrompt"}[name])
    parser = argparse.ArgumentParser()
    theirs.get_parser(parser)
    options = parser.parse_args([])
    options.pretrained = 0
    if name == "dualprompt":
        net = parts.Model(options, 100)
    else:
        coda, vits.torch, parts.VisionTransformer = parts.CodaPrompt, _copied(), vits.VisionTransformer
        parts.CodaPrompt = lambda _, *more: coda(DIM, *more, key_dim=DIM)
        net = parts.Model(100, False, [10, [options.pool_size, options.prompt_len, options.ortho_mu]])
        net.last, net.task_id = nn.Linear(DIM, 100), 0
    learner = theirs.__new__(theirs)
    nn.Module.__init__(learner)
    trained = [value for value in net.parameters() if value.requires_grad]
    if name == "coda_prompt":
        trained = [*net.prompt.parameters(), *net.last.parameters()]
    learner.net, learner.args, learner.loss = net, options, nn.functional.cross_entropy
    learner.opt = torch.optim.Adam(trained, lr=1e-3)
    learner._current_task, learner._epoch_iteration, learner.offset_1, learner.offset_2 = 0, 0, 0, CLASSES
    loader = Loader(size, batch, steps)

    def work() -> list[float]:
        net.train()
        for _, images, labels in loader:
            learner.observe(images, labels, images)
        return loader.taken()

    return work


def main() -> None:
    """Print for each method the milliseconds of an image and the paired ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--methods", default="dual-prompt,coda-prompt,ranpac")
    parser.add_argument("--batch", type=int, help="in place of the published ones")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="timed steps of each side in a round")
    given = parser.parse_args()
    torch.set_num_threads(1)
    is_pilot = (given.checkout / "trainer.py").exists()
    build: Callable[..., Work] = pilot if is_pilot else mammoth
    lab = SimpleNamespace(catalogue=tiny_catalogue(LabPlugin()), device=torch.device("cpu"))
    sys.path.insert(0, str(given.checkout.resolve()))
    for method in given.methods.split(","):
        batch = given.batch or BATCHES[method]
        works = {
            f"{precision}, {'known' if images is Known else 'computed'}": ours(
                lab, "vit_tiny_patch16_224", given.size, method, precision, batch, given.steps, images
            )
            for precision, images in itertools.product((FP32, BF16), (Resident, Known))
        }
        with mock.patch("timm.create_model"), contextlib.redirect_stdout(io.StringIO()):
            works = {"theirs": build(given.checkout, method, given.size, batch, given.steps)} | works
        taken: dict[str, list[float]] = {side: [] for side in works}
        for turn in range(given.rounds + 1):
            for side, work in works.items():
                with contextlib.redirect_stderr(io.StringIO()):
                    seconds = statistics.median(work())
                taken[side] += [seconds] if turn else []  # the first turn warms up
        print(f"{given.checkout.name}: {method}, ViT-Tiny at {given.size} pixels, batch {batch}")
        for side, seconds in taken.items():
            ratios = [other / own for other, own in zip(taken["theirs"], seconds, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"  {side:22s} {1e3 * statistics.median(seconds) / batch:8.1f} ms   {spread}", flush=True)


if __name__ == "__main__":
    main()
