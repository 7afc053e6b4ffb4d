"""A stand-in for CUDA graphs on a CPU."""

from __future__ import annotations

import torch

__all__ = ["replaying"]


def replaying(forward, samples):
    """Return ``forward`` as a CUDA graph runs it: at fixed addresses, which each replay overwrites."""
    # as torch.cuda.make_graphed_callables does
    assert not (torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled())
    wanted = [sample for sample in samples if sample.requires_grad]
    kept = {}

    def into(name, value):
        if name not in kept:
            kept[name] = torch.empty_like(value)
        return kept[name].copy_(value).detach()

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            for sample, tensor in zip(samples, tensors, strict=True):
                sample.data.copy_(tensor)
            with torch.enable_grad():
                kept["live"] = forward(*samples)
            return into("out", kept["live"].detach())

        @staticmethod
        def backward(ctx, gradient):
            found = torch.autograd.grad(kept["live"], wanted, gradient, allow_unused=True, retain_graph=True)
            slopes = iter([None if one is None else into(i, one) for i, one in enumerate(found)])
            return tuple(next(slopes) if sample.requires_grad else None for sample in samples)

    return Replay.apply
