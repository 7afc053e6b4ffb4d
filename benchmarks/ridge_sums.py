"""What a ridge of wide features costs: sums and a solution with its penalty, against numpy's bare product.

    python benchmarks/ridge_sums.py time [--rows 50000] [--widths 2304 4608] [--rounds 3]
    python benchmarks/ridge_sums.py memory [--width 9216]

`time` is in turn, in processor seconds: the head (float64 sums, the penalty by generalised cross-validation,
the weights), numpy's `X.T @ X` with one Cholesky solution at a given penalty, and leaving 5,000 images out.
`memory` says the peak of the process above the sums themselves, in matrices of their size.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import numpy as np
import torch

from lw2g.blocks.ridge import Ridge

_CLASSES = 100
_LEFT_OUT = 5000


def drawn(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 features of overlapping classes, and their labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % _CLASSES
    features = torch.randn(rows, width, generator=generator)
    features += 0.1 * torch.randn(_CLASSES, width, generator=generator)[labels]
    return features, labels


def seconds_of_head(features: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, float]:
    """Return the processor seconds of sums, of the solution, and of leaving images out."""
    head = Ridge(features.shape[1], _CLASSES, 0, 0, choice="gcv")
    began = time.process_time()
    head.update(features, labels)
    summed = time.process_time()
    head.solution(_CLASSES)
    solved = time.process_time()
    head.without_each(features[:_LEFT_OUT].double(), labels[:_LEFT_OUT], _CLASSES)
    return summed - began, solved - summed, time.process_time() - solved


def seconds_of_numpy(features: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the processor seconds of the product and one solution in numpy."""
    rows = features.numpy().astype(np.float64)
    wanted = np.eye(_CLASSES)[labels.numpy()]
    began = time.process_time()
    gram = rows.T @ rows
    cross = rows.T @ wanted
    gram[np.diag_indices_from(gram)] += 0.01 * np.trace(gram) / len(gram)
    np.linalg.solve(np.linalg.cholesky(gram), cross)
    return time.process_time() - began


def report_time(rows: int, widths: list[int], rounds: int) -> None:
    """Print the medians of some rounds for each width."""
    for width in widths:
        features, labels = drawn(rows, width)
        heads, others = [], []
        for _ in range(rounds):
            heads.append(seconds_of_head(features, labels))
            others.append(seconds_of_numpy(features, labels))
        sums, solution, left_out = (statistics.median(part) for part in zip(*heads, strict=True))
        bare = statistics.median(others)
        print(
            f"{rows} x {width}: sums {sums:.1f} s, penalty and weights {solution:.1f} s, "
            f"{_LEFT_OUT} left out {left_out:.1f} s; numpy {bare:.1f} s; "
            f"head / numpy {(sums + solution) / bare:.2f}",
            flush=True,
        )


def report_memory(width: int) -> None:
    """Print the peak of memory above the sums."""
    features, labels = drawn(2000, width)
    head = Ridge(width, _CLASSES, 0, 0, choice="gcv")
    head.of_owner("gram", 0).add_(0)  # sums in place of few rows, and their pages are there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    head.update(features, labels)
    head.solution(_CLASSES)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one = width**2 * 8 / 1024
    print(f"{width} wide: {(peak - before) / one:.2f} matrices of {one / 1024:.0f} MiB beside the sums")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("time", "memory"))
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[2304, 4608])
    parser.add_argument("--width", type=int, default=9216)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.what == "time":
        report_time(asked.rows, asked.widths, asked.rounds)
    else:
        report_memory(asked.width)
