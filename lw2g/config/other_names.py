"""What options of other libraries are here, for messages: keys of PILOT's files above all."""

from __future__ import annotations

from lw2g.interfaces.defaults import REPLAY

__all__ = ["meant_by_others"]

_SIZES = "a task has benchmark.increment classes; of published benchmarks the first has benchmark.base"
_IMAGES = f"baseline {REPLAY!r} keeps baseline.exemplars images of each old class, other methods keep none"
_OTHERS = {
    "init_cls": _SIZES,
    "base": _SIZES,  # asked for where a benchmark has no such option
    **dict.fromkeys(("memory_size", "memory_per_class", "fixed_memory", "buffer_size"), _IMAGES),
    **dict.fromkeys(("convnet_type", "backbone_type"), "the network is --backbone NAME"),
    "shuffle": "benchmark.order=seeded shuffles the classes, benchmark.order_seed is its seed",
}


def meant_by_others(option: str) -> str:
    """Return what an option of another library is here, behind a semicolon; nothing for any other name.

    >>> meant_by_others("convnet_type"), meant_by_others("epochs")
    ('; the network is --backbone NAME', '')
    """
    meant = _OTHERS.get(option.replace("-", "_"))
    return f"; {meant}" if meant else ""
