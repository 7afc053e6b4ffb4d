"""Painting for the glyph benchmark: coordinates, fields, colours and disturbances.

Everything is float32 with the operations IEEE 754 rounds exactly (+, -, *, /, sqrt, floor, comparisons): no
library sine, no reduction whose order may vary. So pixels are the same on every platform. Image planes are
[n, S, S], images [n, 3, S, S], colours [n, 3]. Coordinates run from -1 to 1; angles are counted in turns.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from lw2g_benchmarks.glyph_random import Draws, Floats

__all__ = [
    "Grid",
    "affine_view",
    "canvas",
    "contrast_pair",
    "disturb",
    "edge",
    "hue_colour",
    "paint",
    "quantise",
    "segment_distance",
    "sine",
    "turn",
]

Grid: TypeAlias = tuple[Floats, Floats]


def sine(turns: Floats) -> Floats:
    """Return sin(2 pi turns) to about 1e-3, from a parabola and its correction."""
    x = turns - np.floor(turns + np.float32(0.5))
    y = x * (np.float32(8.0) - np.float32(16.0) * np.abs(x))
    curve: Floats = y + np.float32(0.225) * (y * np.abs(y) - y)
    return curve


def turn(x: Floats, y: Floats, turns: Floats) -> Grid:
    """Return the coordinates (x, y) turned by an angle."""
    s = sine(turns)
    c = sine(turns + np.float32(0.25))  # cosine: a quarter of a turn further
    return c * x - s * y, s * x + c * y


def canvas(size: int) -> Grid:
    """Return pixel centres in [-1, 1] as x [1, 1, S] and y [1, S, 1]."""
    centres = np.arange(size, dtype=np.float32) * np.float32(2) + np.float32(1)
    axis = centres / np.float32(size) - np.float32(1)
    return axis[None, None, :], axis[None, :, None]


def affine_view(
    draws: Draws, size: int, turns: float = 0.05, shift: float = 0.2, scale: tuple[float, float] = (0.8, 1.25)
) -> Grid:
    """Return pixel coordinates seen through a random shift, rotation, scale and shear per sample.

    Pairs of numbers are the ranges of draws, as the benchmark defines them; the side of an image is 2 long.
    """
    x, y = canvas(size)
    x = x - draws.plane(-shift, shift)
    y = y - draws.plane(-shift, shift)
    x, y = turn(x, y, draws.plane(-turns, turns))
    zoom = draws.plane(*scale)
    shear = draws.plane(-0.2, 0.2)
    stretch = draws.plane(0.9, 1.1)
    return x * zoom + y * shear, y * (zoom * stretch)


def edge(depth: Floats, softness: float) -> Floats:
    """Return coverage in [0, 1] for a signed depth (positive inside), linear over ``softness``."""
    cover: Floats = np.clip(
        depth * np.float32(1.0 / softness) + np.float32(0.5), np.float32(0), np.float32(1)
    )
    return cover


def segment_distance(view: Grid, start: Floats, end: Floats) -> Floats:
    """Return squared distances from the pixels to segments start-end, points [n, 2]."""
    start_x = start[:, 0, None, None]
    start_y = start[:, 1, None, None]
    dx = end[:, 0, None, None] - start_x
    dy = end[:, 1, None, None] - start_y
    px = view[0] - start_x
    py = view[1] - start_y
    # where on the segment the nearest point lies, 0 at its start and 1 at its end; 1e-6: it may be a point
    along = (px * dx + py * dy) / (dx * dx + dy * dy + np.float32(1e-6))
    np.clip(along, np.float32(0), np.float32(1), out=along)
    # in place: further arrays of [n, S, S] would be made for every segment
    px -= along * dx
    py -= along * dy
    px *= px
    py *= py
    px += py
    return px


def hue_colour(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    """Return RGB in [0, 1], [n, 3], for hue in turns, saturation and value, each [n, 1]."""
    # red, green and blue have the same ramp over the circle of hues, a third of a turn apart; a turn has six
    # parts, over which the ramp is 1, goes down, is 0 twice, goes up, and is 1
    offsets = np.array([[0.0, 2.0, 4.0]], dtype=np.float32)
    place = hue * np.float32(6) - offsets
    place = place - np.float32(6) * np.floor(place / np.float32(6))
    ramp = np.clip(np.abs(place - np.float32(3)) - np.float32(1), np.float32(0), np.float32(1))
    colour: Floats = value * (np.float32(1) - saturation * (np.float32(1) - ramp))
    return colour


def contrast_pair(draws: Draws, hue: Floats | None = None) -> tuple[Floats, Floats]:
    """Return ink and ground colours of opposite brightness; which of them is bright is random per sample.

    With ``hue`` [n, 1] the ink has that hue and a high saturation, else both hues are random. Pairs of
    numbers are the ranges of draws of saturation and value, as the benchmark defines them.
    """
    # the order of the draws is part of the images: changing it changes every pixel of the benchmark
    free = draws.uniform(2)
    dim = draws.uniform(1, 0.0, 0.35)
    bright = draws.uniform(1, 0.7, 1.0)
    flip = draws.uniform(1) < np.float32(0.5)
    if hue is None:
        saturation = draws.uniform(1, 0.0, 0.8)
        ink_hue = free[:, :1]
    else:
        saturation = draws.uniform(1, 0.6, 1.0)
        ink_hue = hue
        dim = dim + np.float32(0.2)  # in the dark no hue is to be seen
    ink = hue_colour(ink_hue, saturation, np.where(flip, dim, bright))
    ground_saturation = draws.uniform(1, 0.0, 0.5)
    dark = draws.uniform(1, 0, 0.3)
    ground = hue_colour(free[:, 1:], ground_saturation, np.where(flip, bright, dark))
    return ink, ground


def paint(image: Floats, colour: Floats, mask: Floats) -> None:
    """Blend a colour [n, 3] or an image [n, 3, S, S] into ``image`` in place by ``mask`` [n, S, S]."""
    if colour.ndim == 2:
        colour = colour[:, :, None, None]
    difference = colour - image
    difference *= mask[:, None]
    image += difference


def disturb(image: Floats, draws: Draws, occluder: float = 0.4, noise: float = 0.25) -> None:
    """Add an occluding box (with probability ``occluder``), a lighting gradient and pixel noise, in place.

    Pairs of numbers are the ranges of draws, as the benchmark defines them; the side of an image is 2
    long, and a pixel ``2 / size``.
    """
    size = image.shape[-1]
    x, y = canvas(size)
    inside_x = np.abs(x - draws.plane(-0.9, 0.9)) - draws.plane(0.12, 0.35)
    inside_y = np.abs(y - draws.plane(-0.9, 0.9)) - draws.plane(0.12, 0.35)
    # every sample draws a box, and a box that is not wanted is painted with nothing
    shape = edge(-np.maximum(inside_x, inside_y), 4.0 / size)
    box = shape * draws.below(occluder).astype(np.float32)
    paint(image, draws.uniform(3), box)
    light = np.float32(1) + draws.plane(-0.2, 0.2) * x + draws.plane(-0.2, 0.2) * y
    image *= light[:, None]
    image += draws.pixel_noise(size) * draws.uniform(1, 0.2 * noise, noise)[:, :, None, None]


def quantise(image: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the image clipped to [0, 1] as uint8."""
    levels: Floats = np.clip(image, np.float32(0), np.float32(1)) * np.float32(255)
    rounded: Floats = np.floor(levels + np.float32(0.5))
    return rounded.astype(np.uint8)
