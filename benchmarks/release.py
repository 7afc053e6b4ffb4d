"""The authors' release against lw2g on equal work: DualPrompt with LW2G, one CPU thread, part by part.

    python benchmarks/release.py RELEASE --data FOLDER --weights vit_tiny_patch16_224.safetensors

``RELEASE`` is a checkout of the authors' repository (the folder that holds ``trainers``), ``FOLDER`` an image
tree ``train/<class>/*`` and ``test/<class>/*`` of twenty classes with 48 training images each. Both sides
learn five tasks of four classes at 96 pixels from the same weights, with the same transforms, batch size and
epochs; a task's 192 images are at once the evidence sample (the release takes all of them) and what its space
is built from (the release takes as many as tokens are wide, which is 192 here). Growth is scheduled, so that
both measure as many sets: tasks 1 and 4 bring a set, the others go on with the newest; each side measures its
evidence all the same.

The release is called as it is but for this: its width of 768 becomes 192, its ten tasks become five (the
other five have no images), ``torch.cuda.synchronize`` does nothing, its loaders start no processes, and its
models take a weights file. Its option ``use_old_subspace_forward``, which has no effect but time, stays
off. Each run is a process of its own with one thread, the sides taking turns; figures are CPU seconds, so
that what else runs on the machine counts less.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

TASKS, SIZE, BATCH, GROWING = 5, 96, 24, (0, 3)
VIT = {"patch_size": 16, "embed_dim": 192, "depth": 12, "num_heads": 3}
PARTS = ("training", "evidence", "spaces", "evaluation")


def run_release(given: Namespace, folder: Path) -> dict[str, float]:
    """Run the release's DualPrompt trainer in a folder and return its seconds by part."""
    sys.path.insert(0, str(given.release.resolve()))
    import auto.common_utils as common
    import auto.dualprompt.memory as memory
    import datasets
    import engines.dp_engine as engine
    import torch
    import trainers.dp_trainer as trainer
    import vits.dp_vision_transformer as vits
    from configs.cifar100_dualprompt import get_args_parser
    from safetensors.torch import load_file
    from torchvision.datasets import ImageFolder

    parser = argparse.ArgumentParser()
    get_args_parser(parser)
    args = parser.parse_args([])
    vars(args).update(
        {
            "config": "cifar100_dualprompt",
            "dataset": "Split-Imagenet-R",  # the release's way to image folders
            "data_path": str(given.data),
            "device": "cpu",
            "distributed": False,
            "epochs": given.epochs,
            "batch_size": BATCH,
            "input_size": SIZE,
            "num_tasks": TASKS,
            "num_workers": 0,
            "pin_mem": False,
            "output_dir": str(folder / "out"),
            "threshold2": 0.5,
        }
    )
    (folder / "auto/pickle_data" / args.original_model).mkdir(parents=True)
    (folder / "out").mkdir()
    os.chdir(folder)

    def folders(path: str, *, train: bool, transform: Any, download: bool) -> Namespace:
        return Namespace(data=ImageFolder(Path(path) / ("train" if train else "test"), transform))

    def create(name: str, *, pretrained: bool, drop_block_rate: None, **options: Any) -> Any:
        model = vits.VisionTransformer(img_size=SIZE, **VIT, **options)
        state = vits.checkpoint_filter_fn(load_file(given.weights), model)
        model.load_state_dict({k: v for k, v in state.items() if not k.startswith("head.")}, strict=False)
        return model

    widened = (
        common.get_pretrained_feature_and_space,
        memory.get_prefix_matrix,
        memory.get_angel,
        memory.grad_proj,
    )
    for function in widened:
        constants = tuple(VIT["embed_dim"] if one == 768 else one for one in function.__code__.co_consts)
        function.__code__ = function.__code__.replace(co_consts=constants)

    spent: dict[str, float] = defaultdict(float)

    def decided(measure: Callable[..., Any]) -> Callable[..., Any]:
        def decide(**arguments: Any) -> tuple[str, int | None, None]:
            measure(**arguments)
            if arguments["task_id"] in GROWING:
                return "add", None, None
            return "update", max(arguments["available_mini_model_list"].values()), None

        return decide

    def prepared(build: Callable[..., Any]) -> Callable[..., Any]:
        # it asks for ten tasks
        return lambda args, device, loaders, *rest, **named: build(
            args, device, [*loaders, *[{"sample": ()}] * (10 - TASKS)], *rest, **named
        )

    with ExitStack() as stack:
        for module, name, new in (
            (torch.cuda, "synchronize", lambda: None),
            (datasets, "Imagenet_R", folders),
            (trainer, "create_model", create),
            (engine, "train_one_epoch", _timed(engine.train_one_epoch, spent, "training")),
            (engine, "pars_preparing", prepared(_timed(engine.pars_preparing, spent, "spaces"))),
            (engine, "evaluate_till_now", _timed(engine.evaluate_till_now, spent, "evaluation")),
            (memory, "update_memory", _timed(memory.update_memory, spent, "spaces")),
            (memory, "dec_with_memory", decided(_timed(memory.dec_with_memory, spent, "evidence"))),
        ):
            stack.enter_context(mock.patch.object(module, name, new))
        stack.enter_context(redirect_stdout(io.StringIO()))
        _timed(trainer.train, spent, "end to end")(args)
    return dict(spent)


def run_ours(given: Namespace, folder: Path) -> dict[str, float]:
    """Run lw2g on the same work in a folder and return its seconds by part."""
    import numpy as np

    from lw2g.config.resolve import resolve
    from lw2g.interfaces.component import PolicyComponent
    from lw2g.interfaces.growth import Decision, Evidence, Grow, Reuse
    from lw2g.lifecycle.runner import start
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.registry.markers import hookimpl
    from lw2g.runtime.progress import Reporter
    from lw2g_growth.options import PlainConfig

    class Scheduled:
        margin = 0.0
        burden = None

        def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
            if evidence.task in GROWING:
                return Grow()
            return Reuse(max(one.set for one in evidence.candidates))

    class Plugin:
        @hookimpl
        def lw2g_policies(self) -> list[PolicyComponent]:
            return [
                PolicyComponent(
                    name="scheduled",
                    config=PlainConfig,
                    build=lambda config: Scheduled(),
                    summary="grow at tasks 1 and 4",
                )
            ]

    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def clock(self: Reporter, part: str) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds[part] += time.process_time() - began

    catalogue = load_catalogue(plugins=[Plugin()])
    overrides = {
        "backbone.image_size": SIZE,
        "backbone.mean": (0.5, 0.5, 0.5),
        "backbone.std": (0.5, 0.5, 0.5),
        "baseline.batch_size": BATCH,
        "baseline.epochs": given.epochs,
        "benchmark.increment": 4,
        "benchmark.normalise": "unit",
        "benchmark.root": str(given.data),
        "growth.evidence": given.evidence,
        "growth.images": 192,
        "run.device": "cpu",
        "run.precision": given.precision,
    }
    resolved = resolve(
        catalogue,
        overrides=overrides,
        baseline="dual-prompt",
        policy="scheduled",
        constraints=["cpk", "orthogonal"],
        benchmark="folder",
        backbone="vit_tiny_patch16_224",
        weights=str(given.weights),
    )
    with mock.patch.object(Reporter, "clock", clock):
        record = _timed(start, spent, "end to end")(resolved, catalogue, folder / "run")
    found = record["seconds"]
    parts = {**{part: found[part] for part in PARTS if part != "spaces"}, "spaces": found["subspace"]}
    return {**parts, **spent}


def _timed(function: Callable[..., Any], spent: dict[str, float], part: str) -> Callable[..., Any]:
    """Return the function, adding the CPU seconds that it takes to a part."""

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            spent[part] += time.process_time() - began

    return run


def _one(given: Namespace) -> dict[str, float]:
    """Run one side in this process; what it prints goes nowhere."""
    import torch

    torch.set_num_threads(1)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        work = run_release if given.side == "release" else run_ours
        began = time.perf_counter()
        try:
            found = work(given, Path(folder).resolve())
        finally:
            os.chdir(before)
    return {**found, "wall": time.perf_counter() - began}


def _elsewhere(given: Namespace, *options: str) -> dict[str, float]:
    """Run one side in a process of its own."""
    command = [sys.executable, __file__, str(given.release), "--data", str(given.data), "--json"]
    command += ["--weights", str(given.weights), "--epochs", str(given.epochs), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"options": options, **found}), flush=True)
    return found


def compare(given: Namespace) -> None:
    """Let the sides take turns and print the ratios of the medians."""
    sides = {"release": ("--side", "release")}
    for evidence in ("literal", "averaged"):
        for precision in given.precisions.split(","):
            sides[f"lw2g {precision}, {evidence}"] = (
                "--side", "ours", "--precision", precision, "--evidence", evidence
            )  # fmt: skip
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(given.rounds):
        for side, options in sides.items():
            found[side].append(_elsewhere(given, *options))
    columns = (*PARTS, "end to end", "wall")
    medians = {
        side: {part: statistics.median(run[part] for run in runs) for part in columns}
        for side, runs in found.items()
    }
    print(f"\n| release / lw2g | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    theirs = medians["release"]
    print(f"| release, seconds | {' | '.join(f'{theirs[part]:.1f}' for part in columns)} |")
    for side in list(sides)[1:]:
        ratios = (theirs[part] / medians[side][part] for part in columns)
        print(f"| {side} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("release", type=Path, help="the release's folder that holds trainers/")
    parser.add_argument("--data", type=Path, required=True, help="image tree of twenty classes")
    parser.add_argument("--weights", type=Path, required=True, help="weights of vit_tiny_patch16_224")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--precisions", default="32-true,bf16-mixed", help="of lw2g")
    parser.add_argument("--side", choices=("release", "ours"), help="run one side alone")
    parser.add_argument("--precision", default="32-true", help="of that side")
    parser.add_argument("--evidence", default="literal", help="of that side")
    parser.add_argument("--json", action="store_true", help="print that side's seconds as JSON")
    given = parser.parse_args()
    given.data, given.weights = given.data.resolve(), given.weights.resolve()
    if given.side:
        print(json.dumps(_one(given)))
    else:
        compare(given)
