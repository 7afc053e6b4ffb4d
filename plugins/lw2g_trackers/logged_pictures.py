"""Heat maps of confusion, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Picture", "heat_map"]

_SIDE = 480
_EDGE = 30
_PALE = (250, 250, 248)
_DARK = (24, 64, 122)
_MOST_NUMBERS = 12  # more of them do not fit into their cells


@attrs.frozen(kw_only=True)
class Picture:
    """A picture under a name.

    Attributes:
        name: Where a tracker shows it.
        pixels: ``[height, width, 3]`` uint8.
        shares: What it shows, ``[size, size]``: shares of each row in percent.
    """

    name: str
    pixels: NDArray[np.uint8] = attrs.field(eq=False)
    shares: NDArray[np.float64] = attrs.field(eq=False)


def heat_map(
    name: str,
    pairs: Iterable[tuple[int, int]],
    *,
    size: int,
    axes: tuple[str, str],
    borders: tuple[int, ...] = (),
) -> Picture:
    """Draw how often a row was taken for a column, as shares of the row.

    Args:
        name: Of the picture.
        pairs: Row and column of each sample.
        size: Number of rows, and of columns.
        axes: What rows and columns are.
        borders: Rows and columns before which a line is drawn.
    """
    import numpy as np
    from PIL import Image, ImageDraw

    counts = np.zeros((size, size))
    rows, columns = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
    # add.at: plain indexing would count a pair that comes twice once
    np.add.at(counts, (rows, columns), 1)
    # a row without images stays 0
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    colours = np.array(_PALE) + (np.array(_DARK) - np.array(_PALE)) * shares[..., None] / 100
    image = Image.new("RGB", (_SIDE + _EDGE, _SIDE + _EDGE), "white")
    cells = Image.fromarray(colours.round().astype(np.uint8)).resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
    image.paste(cells, (_EDGE, _EDGE))
    draw = ImageDraw.Draw(image)
    draw.text((_EDGE, 8), f"{name}: {axes[0]} (down) x {axes[1]}, % of each row", fill="black")
    cell = _SIDE / size
    for border in borders:
        at = _EDGE + border * cell
        draw.line((_EDGE, at, _EDGE + _SIDE, at), fill=(200, 90, 20))
        draw.line((at, _EDGE, at, _EDGE + _SIDE), fill=(200, 90, 20))
    if size <= _MOST_NUMBERS:
        for row in range(size):
            middle = _EDGE + (row + 0.5) * cell
            draw.text((_EDGE / 2, middle), f"{row + 1}", fill="black", anchor="mm")
            for column in range(size):
                share = shares[row, column]
                ink = "white" if share > 50 else "black"  # to be read on a dark or a pale cell
                draw.text((_EDGE + (column + 0.5) * cell, middle), f"{share:.0f}", fill=ink, anchor="mm")
    return Picture(name=name, pixels=np.asarray(image), shares=shares)
