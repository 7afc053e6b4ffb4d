"""A streamed second moment against the data matrix it replaces: bytes held and seconds to a basis."""

from __future__ import annotations

import time

import torch

from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace

IMAGES, TOKENS, BATCH = 256, 197, 32

if __name__ == "__main__":
    torch.set_num_threads(1)
    for dim, heads in ((384, 1), (384, 6), (768, 1), (768, 12)):
        generator = torch.Generator().manual_seed(0)
        mixing = torch.randn(dim, dim, generator=generator) / dim**0.5
        moment, batches = SecondMoment(dim, heads), []
        streamed = 0.0
        for _ in range(IMAGES // BATCH):
            rows = torch.randn(BATCH * TOKENS, dim, generator=generator) @ mixing
            batches.append(rows)
            began = time.perf_counter()
            moment.update(rows)
            streamed += time.perf_counter() - began
        began = time.perf_counter()
        space = Subspace.build(moment, 0.95)
        streamed += time.perf_counter() - began
        data = torch.cat(batches)
        began = time.perf_counter()
        torch.linalg.svd(data, full_matrices=False)
        whole = time.perf_counter() - began
        held = moment.matrix.numel() * 8 / (data.numel() * 4)
        ratios = f"memory {held:.4f} x, time {streamed / whole:.3f} x"
        print(f"dim {dim} heads {heads:2d}: rank {space.rank}, {ratios}")
