"""How a feature is made of a model's output, in the words of its options. Importing it imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

__all__ = [
    "FEATURE_OPTIONS",
    "LAYERS_HELP",
    "POOLS",
    "POOL_HELP",
    "WIDEST",
    "Layers",
    "Pool",
    "PoolWord",
    "check_layers",
    "in_timm",
]

Pool = Literal["token", "avg", "both", "map", "default"]
"""The class token, the mean of the patches, both, a pooling by attention, or the model's own."""
POOLS: tuple[Pool, ...] = get_args(Pool)
if TYPE_CHECKING:
    # what an option holds: its converter, :func:`in_timm`, has run
    PoolWord = Pool
else:
    PoolWord = Literal["default", "token", "avg", "both", "map", "class", "patches"]
"""What an option takes: timm's words, and those of papers for two of them."""
Layers = int | Literal["all", "auto"]
"""How many of the last layers: the final norm's output is the last one, each block's output one before it.

With ``auto`` as many as give up to :data:`WIDEST` numbers.
"""
WIDEST = 4608
"""Most numbers of a feature whose layers ``auto`` joins: twelve of ViT-Tiny, six of ViT-S, three of ViT-B."""
FEATURE_OPTIONS = ("layers", "pool")
"""Options of a backbone that say how features are made."""

_TIMM = {"class": "token", "patches": "avg"}

POOL_HELP = (
    "how a feature is made of the model's output: token or class: the class token; avg or patches: the mean "
    "of the patches; both: these two; map: the model's pooling by attention; default: of one layer the "
    "model's own, of DINOv3 the class token; of several both, or the patches where there is no class token"
)
LAYERS_HELP = (
    "of how many of the last layers frozen features, and those of a head in closed form, are joined: the "
    "final norm is the last layer, each block one before it; all: every block and the final norm; auto: as "
    "many as give up to 4,608 numbers"
)


def in_timm(pool: str | None) -> Any:
    """Return timm's word for a pooling, so that one pooling has one name in records.

    >>> in_timm("class"), in_timm("both")
    ('token', 'both')
    """
    return pool if pool is None else _TIMM.get(pool, pool)


def check_layers(instance: Any, attribute: Any, layers: Any) -> None:
    """At least 1, if it is a number; the model says how many there are.

    A validator of attrs, whose first line stands in the help.
    """
    if isinstance(layers, int) and layers < 1:
        raise ValueError(f"'{attribute.name}' must be >= 1, or 'all' or 'auto': {layers!r}")
