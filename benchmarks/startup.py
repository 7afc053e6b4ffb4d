"""From the start of the default run to its first step, beside what torch and timm take by themselves.

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
        if name != "lw2g.tasks.phases":
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
import os, time
BEGAN = time.perf_counter()

def tell():
    os.write(1, f"seconds {time.process_time()} {time.perf_counter() - BEGAN}".encode())
    os._exit(0)
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


def seconds(work: str) -> tuple[float, float]:
    """Return CPU and wall seconds of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        code = TELL + work.replace("OUT", repr(str(Path(folder) / "run"))) + "\ntell()"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=CACHED
        )
    cpu, wall = done.stdout.split("seconds")[1].split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken = [{name: seconds(work) for name, work in WORKS.items()} for _ in range(rounds + 1)][1:]
    for name in WORKS:
        cpu, wall = (statistics.median(one[name][kind] for one in taken) for kind in range(2))
        print(f"{name:20s} CPU {cpu:5.2f} s  wall {wall:5.2f} s")
