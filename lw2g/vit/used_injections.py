"""With which injections a method runs the backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import Injection
from lw2g.vit.stopping import Reading
from lw2g.vit.taps import Tap

__all__ = ["injections_of"]


def injections_of(backbone: Backbone, forward: Callable[[], object]) -> tuple[Injection, ...]:
    """Return the injections with which ``forward`` runs a backbone; nothing is computed.

    Args:
        backbone: The backbone.
        forward: Calls ``features`` or ``tokens`` of it, directly or through a baseline. The first forward
            outside ``unread`` counts.

    Raises:
        ValueError: ``forward`` did not run the backbone.
    """
    gathered: list[Injection] = []

    def gather(images: Tensor, taps: object, injections: Sequence[Injection]) -> dict[Tap, Tensor]:
        gathered.extend(injections)
        return {}

    # a reading of no taps: it ends the forward before anything is computed
    backbone._reading = Reading((), gather)
    try:
        backbone._reading.of(forward)
    finally:
        backbone._reading = None
    return tuple(gathered)
