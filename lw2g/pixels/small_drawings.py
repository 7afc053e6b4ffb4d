"""Whether images suit the embedded backbone, which was trained on small drawings and knows no photographs.

Importing this module imports no plugin, no torch and no reader of images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from lw2g.config.sources import places_of
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note_once
from lw2g.interfaces.defaults import DEFAULT_BACKBONE, PHOTO_BACKBONE
from lw2g.registry.catalogue import Catalogue

if TYPE_CHECKING:
    from lw2g.config.settings import Resolved

__all__ = ["require_drawing", "require_drawings", "tell_photo"]

_SIDE = 32
"""Side in pixels of the images that the embedded backbone was trained on."""
_LOOKED_AT = 20
"""Images of a folder that are looked at."""
_KNOWN = f"the embedded backbone knows drawings of up to {_SIDE} x {_SIDE} alone"


def require_drawings(resolved: Resolved, catalogue: Catalogue, option: str = "--backbone ") -> None:
    """Refuse photographs for the embedded backbone where nobody has named it.

    Args:
        resolved: The experiment; of each folder that it reads a few images are looked at.
        catalogue: Where its components come from.
        option: How a backbone is named there, for the message.

    Raises:
        ConfigError: An image is larger than those which that backbone was trained on.
    """
    chosen = resolved.config.backbone.name
    if resolved.names_backbone or not catalogue.get("backbone", chosen).embedded:
        return
    places = chain.from_iterable(places_of(resolved.config.benchmark).values())
    folders = [place for place in places if place.is_dir()]
    if not folders:  # what follows imports torch, and many a command has no use for it
        return
    from lw2g.pixels.image_files import examine_image

    for path in _some_images(folders):
        try:
            size = examine_image(path).size
        except DataError:  # it is reported where all are read
            continue
        require_drawing(repr(str(path)), size, chosen, option)


def require_drawing(
    name: str, size: tuple[int, int], backbone: str = DEFAULT_BACKBONE, option: str = "--backbone "
) -> None:
    """Refuse an image that is larger than those which the embedded backbone was trained on.

    Args:
        name: What the image is called.
        size: Its width and height.
        backbone: The name of that backbone.
        option: As for :func:`require_drawings`.

    Raises:
        ConfigError: It is.
    """
    if max(size) > _SIDE:
        width, height = size
        raise ConfigError(
            f"{name} has {width} x {height} pixels, and {_KNOWN}",
            f"for photos: {option}{PHOTO_BACKBONE} (23 MB); to use it all the same: {option}{backbone}",
        )


def tell_photo(size: tuple[int, int], backbone: str) -> None:
    """Tell once where a model on the embedded backbone takes what :func:`require_drawing` refuses."""
    if backbone == DEFAULT_BACKBONE and max(size) > _SIDE:
        tell_note_once(
            f"images have more than {_SIDE} x {_SIDE} pixels, and {_KNOWN}; for photos: "
            f"lw2g start FOLDER MODEL --backbone {PHOTO_BACKBONE}"
        )


def _some_images(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield a few images of each folder."""
    from lw2g.pixels.found_images import files_below, image_endings

    known = image_endings()
    for folder in folders:
        images = (path for path in files_below(folder) if path.suffix.lower() in known)
        yield from islice(images, _LOOKED_AT)
