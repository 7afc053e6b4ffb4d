"""The function of lw2g that teaches a model from a page in the browser.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lw2g.ground.spelling import expands_paths

__all__ = ["teach"]


@expands_paths
def teach(
    model: str | Path,
    *,
    port: int = 0,
    weights: str | Path | None = None,
    device: str | None = None,
    on_address: Callable[[str], None] = print,
) -> Path:
    """Serve a page on 127.0.0.1 that teaches the exported ``model``, until Ctrl-C.

    Each step is what ``lw2g learn`` and ``lw2g unlearn --last`` do. A session leaves the models 1, 2, ... in
    the new folder MODEL-taught; ``model`` stays as it is.

    Args:
        model: The directory of the export.
        port: Port on 127.0.0.1; 0 for a free one.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        on_address: Receives the page's address as soon as it is served.

    Returns:
        The folder of the model as it is at the end.

    Raises:
        DataError: The model or its weights cannot be used.
        ConfigError: The model's head is trained, or the port cannot be had.
    """
    from lw2g.disk.origins import made_with
    from lw2g.registry.catalogue import load_catalogue
    from lw2g_photos.classroom import Classroom
    from lw2g_photos.server import Server

    file = None if weights is None else Path(weights)
    catalogue = load_catalogue(made_with=made_with(Path(model)))
    classroom = Classroom(Path(model), catalogue, device=device, weights=file)
    try:
        with Server(classroom, port) as server:
            on_address(server.address)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    finally:  # SIGTERM, too, leaves no photo behind
        classroom.close()
    # of the newest model: every step has a folder of its own
    return Path(classroom.state()["folder"])
