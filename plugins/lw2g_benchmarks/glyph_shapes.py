"""The five glyph families and their renderer.

A *class* is a prototype drawn from its key; a *sample* varies the prototype with numbers drawn from its own
key. Each painter takes the two streams of random numbers (rows = samples) and returns images [n, 3, S, S].
This module needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lw2g_benchmarks.glyph_painting import (
    Grid,
    affine_view,
    contrast_pair,
    disturb,
    edge,
    hue_colour,
    paint,
    quantise,
    segment_distance,
    sine,
    turn,
)
from lw2g_benchmarks.glyph_random import Draws, Floats, Keys, class_key, sample_keys

__all__ = [
    "FAMILIES",
    "Images",
    "Painter",
    "grating",
    "render",
    "render_classes",
    "shape_field",
    "stroke_mask",
]

Images: TypeAlias = npt.NDArray[np.uint8]
Painter: TypeAlias = Callable[[Draws, Draws, int], Floats]

_CHUNK = 128  # samples painted together: the working arrays of 32-pixel images then stay in cache
_CURVES = 4
_PIECES = 4
_PRIMITIVES = 3
_DISCS = 8
_STRAYS = 2


def stroke_mask(
    prototype: Draws,
    sample: Draws,
    view: Grid,
    width: tuple[float, float] = (0.06, 0.15),
    softness: float = 0.08,
) -> Floats:
    """Return the coverage of a character of two to four curved strokes, [n, S, S].

    ``width`` is the range of half the pen's width, ``softness`` the extent of its edge. Pairs of numbers are
    the ranges of draws, as the benchmark defines them; the side of an image is 2 long.
    """
    jitter = 0.08
    points = prototype.uniform(_CURVES * 3 * 2, -0.75, 0.75).reshape(-1, _CURVES, 3, 2)
    joined = prototype.uniform(_CURVES) < np.float32(0.6)
    wanted = np.floor(prototype.uniform(1, 2.0, 5.0))
    points = points + sample.uniform(_CURVES * 3 * 2, -jitter, jitter).reshape(points.shape)
    nearest = np.full_like(view[0], np.float32(16))  # squared distance, larger than any
    for k in range(_CURVES):
        curve = points[:, k]
        if k:
            # some strokes begin where the last one ends
            start = np.where(joined[:, k, None], points[:, k - 1, 2], curve[:, 0])
            curve = np.stack([start, curve[:, 1], curve[:, 2]], axis=1)
            # all rows get as many strokes, so one that a class has not repeats its first
            curve = np.where((wanted > k)[:, :, None], curve, points[:, 0])
        for start, end in _flattened(curve):
            np.minimum(nearest, segment_distance(view, start, end), out=nearest)
    return edge(sample.plane(*width) - np.sqrt(nearest), softness)


def _flattened(curve: Floats) -> list[tuple[Floats, Floats]]:
    """Cut quadratic Bezier curves [n, 3, 2] into segments."""
    knots = []
    for i in range(_PIECES + 1):
        t = np.float32(i / _PIECES)
        s = np.float32(1) - t
        # B(t) = (1 - t)^2 P0 + 2 (1 - t) t P1 + t^2 P2
        knots.append(s * s * curve[:, 0] + np.float32(2) * s * t * curve[:, 1] + t * t * curve[:, 2])
    return list(pairwise(knots))


def shape_field(prototype: Draws, sample: Draws, view: Grid, jitter: float = 0.05) -> tuple[Floats, Floats]:
    """Return depths (positive inside) of a solid made of three primitives and of its last one alone.

    Pairs of numbers are the ranges of draws, as the benchmark defines them; the side of an image is 2 long.
    """
    kinds = np.floor(prototype.uniform(_PRIMITIVES, 0.0, 3.0))
    centres = prototype.uniform(_PRIMITIVES * 2, -0.45, 0.45)
    centres = centres + sample.uniform(_PRIMITIVES * 2, -jitter, jitter)
    sizes = prototype.uniform(_PRIMITIVES * 2, 0.2, 0.6) * sample.uniform(_PRIMITIVES * 2, 0.9, 1.1)
    turns = prototype.uniform(_PRIMITIVES)
    hollow = prototype.below(0.5)
    depths = []
    for k in range(_PRIMITIVES):
        # two columns of a primitive, along x and along y; [n, 1, 1] against the pixels of the view
        across, along = 2 * k, 2 * k + 1
        x = view[0] - centres[:, across, None, None]
        y = view[1] - centres[:, along, None, None]
        x, y = turn(x, y, turns[:, k, None, None])
        x = np.abs(x / sizes[:, across, None, None])
        y = np.abs(y / sizes[:, along, None, None])
        # the unit balls of three norms
        ellipse = np.sqrt(x * x + y * y)
        rectangle = np.maximum(x, y)
        rhombus = x + y
        kind = kinds[:, k, None, None]
        norm = np.where(kind == 0, ellipse, np.where(kind == 1, rectangle, rhombus))
        depths.append((np.float32(1) - norm) * np.float32(0.35))
    first, second, last = depths
    # the larger of two signed depths is that of the union, the smaller with one negated that of the cut-out
    body = np.maximum(first, second)
    solid = np.where(hollow, np.minimum(body, -last), np.maximum(body, last))
    return solid, last


def grating(prototype: Draws, sample: Draws, view: Grid) -> Floats:
    """Return a texture in [0, 1] of two waves with free phases, bent by a third, [n, S, S].

    Pairs of numbers are the ranges of draws, as the benchmark defines them; angles and phases are in turns.
    """
    # of the class, and a little different in each of its samples
    angles = prototype.uniform(2, 0.0, 0.5) + sample.uniform(2, -0.015, 0.015)
    pitches = prototype.uniform(2, 0.7, 3.2) * sample.uniform(2, 0.93, 1.07)
    # of the class: how its waves are bent, how sharp their edges are, and how two become one
    bend = prototype.plane(0.0, 0.12)
    gain = prototype.plane(0.6, 2.5)
    mixing = prototype.plane(0.2, 0.8)
    is_product = prototype.below(0.4)
    phases = sample.uniform(3)
    bent: Floats = view[0] + bend * sine(view[1] * np.float32(1.5) + phases[:, 2, None, None])
    waves = []
    for k in range(2):
        along, _ = turn(bent, view[1], angles[:, k, None, None])
        waves.append(sine(along * pitches[:, k, None, None] + phases[:, k, None, None]))
    mixed = waves[0] * mixing + waves[1] * (np.float32(1) - mixing)
    total = np.where(is_product, waves[0] * waves[1], mixed) * gain
    # waves are in [-1, 1]
    level: Floats = np.clip(total * np.float32(0.5) + np.float32(0.5), np.float32(0), np.float32(1))
    return level


def _blank(colour: Floats, size: int) -> Floats:
    return np.broadcast_to(colour[:, :, None, None], (len(colour), 3, size, size)).copy()


def _near(prototype: Draws, sample: Draws, spread: float) -> Floats:
    """Return a hue of the class with a spread per sample, [n, 1]."""
    return prototype.uniform(1) + sample.uniform(1, -spread, spread)


def paint_strokes(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint characters: curved strokes in any colour on a plain ground."""
    view = affine_view(sample, size)
    ink, ground = contrast_pair(sample)
    image = _blank(ground, size)
    paint(image, ink, stroke_mask(prototype, sample, view))
    return image


def paint_solids(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint filled shapes with a hue of their class and an inner part in another.

    Pairs of numbers are the ranges of draws, as the benchmark defines them. An edge is 2.5 / 2 pixels soft:
    the side of an image is 2 long, and a pixel ``2 / size``.
    """
    view = affine_view(sample, size, turns=0.08, shift=0.3)
    ink, ground = contrast_pair(sample, _near(prototype, sample, 0.15))
    inner = hue_colour(
        _near(prototype, sample, 0.15), sample.uniform(1, 0.5, 1.0), sample.uniform(1, 0.3, 1.0)
    )
    solid, part = shape_field(prototype, sample, view)
    image = _blank(ground, size)
    paint(image, ink, edge(solid, 2.5 / size))
    paint(image, inner, edge(np.minimum(solid, part), 2.5 / size))
    return image


def paint_gratings(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint textures between two colours; the class fixes angles, pitches and bend, not phases."""
    view = affine_view(sample, size, turns=0.015, shift=0.0, scale=(0.95, 1.05))
    ink, ground = contrast_pair(sample, _near(prototype, sample, 0.25))
    image = _blank(ground, size)
    paint(image, ink, grating(prototype, sample, view))
    return image


def paint_dots(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint constellations of four to eight discs among two stray ones.

    Pairs of numbers are the ranges of draws, as the benchmark defines them; the side of an image is 2 long.
    """
    view = affine_view(sample, size)
    ink, ground = contrast_pair(sample)
    image = _blank(ground, size)
    # of the class: where its discs are, how large, how many, and which have another colour
    places = prototype.uniform(2 * _DISCS, -0.75, 0.75) + sample.uniform(2 * _DISCS, -0.07, 0.07)
    radii = prototype.uniform(_DISCS, 0.09, 0.24)
    present = np.floor(prototype.uniform(1, 4.0, 9.0))
    second = prototype.uniform(_DISCS) < np.float32(0.35)
    other = hue_colour(
        _near(prototype, sample, 0.15), sample.uniform(1, 0.7, 1.0), sample.uniform(1, 0.4, 0.7)
    )
    strays = sample.uniform(2 * _STRAYS, -0.9, 0.9)
    for k in range(_DISCS):
        mask = _disc(view, places[:, 2 * k : 2 * k + 2], radii[:, k, None, None])
        # all rows get as many discs, so one that a class has not is painted with nothing
        mask *= (present > k)[:, :, None].astype(np.float32)
        paint(image, np.where(second[:, k, None], other, ink), mask)
    for k in range(_STRAYS):
        mask = _disc(view, strays[:, 2 * k : 2 * k + 2], sample.plane(0.05, 0.12))
        paint(image, ink, mask)
    return image


def _disc(view: Grid, place: Floats, radius: Floats) -> Floats:
    """Return the coverage of a disc at a place [n, 2] with a radius [n, 1, 1], [n, S, S]."""
    x = view[0] - place[:, 0, None, None]
    y = view[1] - place[:, 1, None, None]
    size = view[0].shape[-1]
    return edge(radius - np.sqrt(x * x + y * y), 2.5 / size)


def paint_mosaics(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint four-by-four tilings from a palette of the class, rolled freely, with some tiles exchanged.

    Pairs of numbers are the ranges of draws, as the benchmark defines them; hues are in turns.
    """
    cells = 4  # along each side
    x, y = affine_view(sample, size, turns=0.03, shift=0.0, scale=(0.85, 1.2))
    hue = prototype.uniform(4) + sample.uniform(1, -0.06, 0.06)
    saturation = prototype.uniform(4, 0.2, 1.0)
    value = prototype.uniform(4, 0.25, 1.0)
    gain = sample.uniform(1, 0.75, 1.1)
    palette = []
    for k in range(4):
        palette.append(hue_colour(hue[:, k, None], saturation[:, k, None], value[:, k, None] * gain))
    # which of the four colours a tile has: that of the class, or in a fifth of the tiles a drawn one
    wanted = prototype.uniform(cells * cells, 0.0, 4.0)
    stray = sample.uniform(cells * cells) < np.float32(0.2)
    choice = np.floor(np.where(stray, sample.uniform(cells * cells, 0.0, 4.0), wanted)).astype(np.intp)
    colours = np.take_along_axis(np.stack(palette, axis=1), choice[:, :, None], axis=1)  # [n, cells^2, 3]
    # the tile of each pixel, whose coordinates are in [-1, 1]; a roll goes round, by the modulus
    half = np.float32(cells / 2)
    column = np.floor((x + sample.plane(-0.5, 0.5)) * half).astype(np.intp) % cells
    row = np.floor((y + sample.plane(-0.5, 0.5)) * half).astype(np.intp) % cells
    tiles = (row * cells + column).reshape(len(colours), -1)
    pixels = np.take_along_axis(colours, tiles[:, :, None], axis=1)
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(-1, 3, size, size)


FAMILIES: Mapping[str, Painter] = {
    "strokes": paint_strokes,
    "solids": paint_solids,
    "gratings": paint_gratings,
    "dots": paint_dots,
    "mosaics": paint_mosaics,
}


def render(painter: Painter, class_keys: Keys, samples: Keys, size: int) -> Images:
    """Return the images of samples, uint8 [n, 3, size, size]; row i has class ``class_keys[i]``."""
    images = np.empty((len(samples), 3, size, size), dtype=np.uint8)
    for start in range(0, len(samples), _CHUNK):
        part = slice(start, start + _CHUNK)
        sample = Draws(samples[part])
        image = painter(Draws(class_keys[part]), sample, size)
        disturb(image, sample)
        images[part] = quantise(image)
    return images


def render_classes(
    painter: Painter,
    family: str,
    indices: Iterable[int],
    split: str,
    count: int,
    *,
    namespace: str,
    seed: int,
    size: int,
) -> Images:
    """Return the first ``count`` samples of each class of a family in one split, class by class.

    Classes are painted together: what numpy takes for a call is then paid once for many of them.
    """
    keys = [class_key(namespace, seed, family, index) for index in indices]
    samples = np.concatenate([sample_keys(key, split, count) for key in keys])
    class_of_sample = np.repeat(np.array(keys, dtype=np.uint64), count)
    return render(painter, class_of_sample, samples, size)
