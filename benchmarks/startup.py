"""Commands that answer at once, and the default run to its first step, beside what torch takes by itself.

    python benchmarks/startup.py --run RUN --model MODEL --image IMAGE --classes FOLDER

MODEL is an export that learns, IMAGE a file, FOLDER holds ``CLASS/*`` to learn; rows without their argument
are left out.

Every row is a process of its own, in turn; byte code is cached, as in any installation. The garbage collector
is held back in all rows but the plain imports, as ``lw2g run`` does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HELD = "import gc; gc.disable(); "
STEP = """
from timm.models.vision_transformer import VisionTransformer
vit = VisionTransformer(img_size=32, patch_size=8, embed_dim=128, depth=6, num_heads=4, num_classes=10)
vit(torch.zeros(24, 3, 32, 32)).sum().backward()
"""
RUN = """
import importlib.abc, importlib.util, os, sys

class Hook(importlib.abc.MetaPathFinder):
    # the run ends after its first optimizer step
    def find_spec(self, name, path, target=None):
        if name != "lw2g.learning.phases":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def loaded(module):
            execute(module)
            step = module._step
            module._step = lambda *all, **named: (step(*all, **named), tell())

        spec.loader.exec_module = loaded
        return spec

sys.meta_path.insert(0, Hook())
from lw2g.cli.main import main
main(["run", "--out", OUT])
"""
TELL = """
import os, signal, time
BEGAN = time.perf_counter()

def tell():
    cpu = sum(os.times()[:4])  # those of child processes too
    os.write(1, f"MEASURED {cpu} {time.perf_counter() - BEGAN}".encode())
    # not `os._exit`, which a run takes for a plugin's and tells of
    os.kill(os.getpid(), signal.SIGKILL)
"""


COMMAND = """
import atexit, sys
atexit.register(tell)
from lw2g.cli.main import main
main(ARGUMENTS)
"""
CACHED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
WORKS = {
    "import torch, timm": "import torch, timm",
    "import torch": HELD + "import torch",
    "and its compiler": HELD + "import torch._dynamo",
    "and timm": HELD + "import torch, timm",
    "and a model's step": HELD + "import torch, timm" + STEP,
    "lw2g run": RUN,
}


def commands(run: str | None, model: str | None, image: str | None, classes: str | None) -> dict[str, str]:
    """Return the code of each command whose arguments are given."""
    asked: dict[str, list[str | None]] = {
        "lw2g --help": ["--help"],
        "lw2g verify": ["verify", run],
        "lw2g show": ["show", run],
        "lw2g report --html": ["report", run, "--html", "OUT.html"],
        "lw2g predict": ["predict", model, image],
        "lw2g learn": ["learn", model, classes, "--out", "OUT"],
        "lw2g doctor --quick": ["doctor", "--quick"],
    }
    return {
        name: COMMAND.replace("ARGUMENTS", repr(arguments))
        for name, arguments in asked.items()
        if None not in arguments
    }


def seconds(work: str) -> tuple[float, float]:
    """Return CPU and wall seconds of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        code = TELL + work.replace("'OUT", f"'{out}").replace("OUT", repr(out)) + "\ntell()"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=CACHED
        )
    if "MEASURED" not in done.stdout:
        raise SystemExit(f"{work}\ndid not end as it should: {done.stderr}")
    cpu, wall = done.stdout.split("MEASURED")[1].split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    for name in ("run", "model", "image", "classes"):
        parser.add_argument(f"--{name}", type=lambda path: str(Path(path).absolute()))
    options = parser.parse_args()
    works = WORKS | commands(options.run, options.model, options.image, options.classes)
    taken = [{name: seconds(work) for name, work in works.items()} for _ in range(options.rounds + 1)][1:]
    for name in works:
        cpu, wall = (statistics.median(one[name][kind] for one in taken) for kind in range(2))
        print(f"{name:20s} CPU {cpu:5.2f} s  wall {wall:5.2f} s")
