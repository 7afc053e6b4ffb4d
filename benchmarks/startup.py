"""From the start of the default run to its first step, beside bare imports of torch and timm."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BARE = "import torch, timm"
RUN = """
import importlib.abc, importlib.util, os, sys

class Hook(importlib.abc.MetaPathFinder):
    # the run ends after its first optimizer step
    def find_spec(self, name, path, target=None):
        if name != "lw2g.training.phases":
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


def seconds(work: str) -> tuple[float, float]:
    """Return CPU and wall seconds of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        code = TELL + work.replace("OUT", repr(str(Path(folder) / "run"))) + "\ntell()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cpu, wall = done.stdout.split("seconds")[1].split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken = [(seconds(BARE), seconds(RUN)) for _ in range(rounds)]
    for place, name in enumerate(("import torch, timm", "to the first step")):
        cpu, wall = (statistics.median(one[place][kind] for one in taken) for kind in range(2))
        print(f"{name:20s} CPU {cpu:5.2f} s  wall {wall:5.2f} s")
