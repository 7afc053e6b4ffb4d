"""Whether something fits into memory, asked before any of it is taken. Importing this needs no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from timm.models.vision_transformer import VisionTransformer

__all__ = ["CGROUP", "bounded", "bytes_per_image", "require_room", "usable_memory"]

CGROUP = Path("/sys/fs/cgroup")
_GIB = 2**30
_FLOAT = 4
_TRAINED = 2
"""What is trained has a gradient beside it."""


def usable_memory(cgroup: Path = CGROUP) -> int | None:
    """Return the bytes of memory that this process may use, None where the system does not say."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    with suppress(OSError, ValueError):
        return min(size, int((cgroup / "memory.max").read_text()))
    return size


def require_room(needed: int, what: str, remedy: str, device: torch.device | None = None) -> None:
    """Refuse what can never fit, however empty the memory is.

    Args:
        needed: A lower bound of its bytes.
        what: Named in the message, with its value.
        remedy: What to do.
        device: Where it would lie; None for the machine's own memory.

    Raises:
        ConfigError: All memory there is would not do.
    """
    if device is not None and device.type == "cuda":
        import torch

        there: int | None = torch.cuda.get_device_properties(device).total_memory
    else:
        there = usable_memory()
    if there is not None and needed > there:
        raise ConfigError(
            f"{what} cannot fit: {needed / _GIB:.4g} GiB at least, and there are {there / _GIB:.4g}; {remedy}"
        )


def bytes_per_image(model: VisionTransformer) -> int:
    """Return a lower bound of the bytes that one image takes in a forward pass.

    The image itself, its tokens, and the hidden layer of one block.
    """
    side = model.patch_embed.img_size[0]
    tokens = model.patch_embed.num_patches + model.num_prefix_tokens
    hidden = model.blocks[0].mlp.fc1.out_features
    return int(_FLOAT * (3 * side**2 + tokens * (model.embed_dim + hidden)))


@contextmanager
def bounded(what: str, device: torch.device) -> Iterator[None]:
    """Refuse tensors that cannot fit before they are made, within the block and in any component's code.

    Args:
        what: Whose tensors, such as ``"baseline 'dual-prompt'"``.
        device: Where they are to lie in the end.

    Raises:
        ConfigError: What the block makes cannot be held and trained in all the memory there is.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    made = 0

    class Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            nonlocal made
            # Only makers (empty, zeros, randn ...) have a size and no tensor among their arguments.
            names = [argument.name for argument in func._schema.arguments]
            if "size" in names and "self" not in names:
                size = (kwargs or {}).get("size") or args[names.index("size")]
                made += math.prod(size) * _FLOAT * _TRAINED
                require_room(made, f"{what}: a tensor of size {list(size)}", "lower its options", device)
            return func(*args, **(kwargs or {}))

    with Bounded():  # type: ignore[no-untyped-call]
        yield
