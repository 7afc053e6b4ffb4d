"""What LW2G costs: one baseline under ``always`` and under ``min``, on the embedded glyphs, part by part."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import lw2g


def seconds(baseline: str, policy: str, out: Path) -> dict[str, Any]:
    few = {"benchmark.train_per_class": 20, "benchmark.test_per_class": 10}
    record = lw2g.run(out=out / policy, baseline=baseline, policy=policy, **few)
    return dict(record["seconds"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--baseline", default="dual-prompt")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = seconds(arguments.baseline, "always", Path(folder))
        grown = seconds(arguments.baseline, "min", Path(folder))
    for part in ("evidence", "training", "subspace", "evaluation", "total"):
        ratio = f"{grown[part] / plain[part]:.2f}" if plain[part] else "-"
        print(f"{part:10s}  always {plain[part]:7.2f} s  min {grown[part]:7.2f} s  ratio {ratio}")
