"""Run one experiment on the CPU in float32 and on a GPU in bf16 (and float32), and say how far they agree.

    python scripts/compare_devices.py --out runs/devices --baseline hide-prompt --policy min
    python scripts/compare_devices.py --out runs/devices experiments/reduced/cifar20.toml --policy min

Prints, for each run against the CPU run in float32: the share of equal predictions after the last task, the
difference of FAA, whether the decisions are the same and how far Z moved, and the ratio of images per second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file

SETTINGS = {
    "cpu-32": ("cpu", "32-true"),
    "cpu-bf16": ("cpu", "bf16-mixed"),
    "gpu-32": ("cuda", "32-true"),
    "gpu-bf16": ("cuda", "bf16-mixed"),
}


def run(name: str, out: Path, passed: list[str]) -> dict[str, Any]:
    """Run one setting unless it is there already, and return its record."""
    directory = out / name
    device, precision = SETTINGS[name]
    if not (directory / "config.toml").exists():
        command = [sys.executable, "-m", "lw2g", "run", *passed, "--device", device]
        subprocess.run([*command, "--precision", precision, "--out", str(directory)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "lw2g", "resume", str(directory)], check=True)
    record: dict[str, Any] = json.loads((directory / "record.json").read_text())
    last = max((directory / "predictions").glob("task-*.safetensors"))
    record["predicted"] = load_file(last)["predicted"]
    return record


def compare(name: str, one: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return one line on how a run agrees with the reference."""
    same = float((one["predicted"] == reference["predicted"]).mean()) * 100
    moved = [
        abs(mine["z"] - other["z"])
        for a, b in zip(one["decisions"], reference["decisions"], strict=True)
        for mine, other in zip(a["candidates"], b["candidates"], strict=False)
        if mine["z"] is not None and other["z"] is not None
    ]
    sets = "same sets" if one["task_to_set"] == reference["task_to_set"] else "other sets"
    faa = one["metrics"]["faa"] - reference["metrics"]["faa"]
    speed = one["images_per_second"] / reference["images_per_second"]
    largest = max(moved, default=0.0)
    moves = f"{sets}, max |dZ| {largest:.3f}"
    return f"{name}: {same:.2f} % equal predictions, FAA {faa:+.2f}, {moves}, {speed:.1f} x images/s"


def main() -> None:
    """Run all settings this machine can run and compare them with the first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments, passed = parser.parse_known_args()
    names = [name for name in SETTINGS if not name.startswith("gpu") or torch.cuda.is_available()]
    if len(names) < len(SETTINGS):
        print("no CUDA device here: comparing precisions on the CPU only", file=sys.stderr)
    records = {name: run(name, arguments.out, passed) for name in names}
    for name in names[1:]:
        print(compare(name, records[name], records[names[0]]))


if __name__ == "__main__":
    main()
