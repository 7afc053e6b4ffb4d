"""The glyph classes on which the embedded micro ViT is trained: none of them is in the glyphs benchmark.

Classes are hashed in a namespace of their own, so no prototype is shared with the benchmark whatever its
seed. Beside the five families of the benchmark there are four more, for features of wider use. Numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lw2g_benchmarks.glyph_painting import affine_view, contrast_pair, edge, hue_colour, paint, sine
from lw2g_benchmarks.glyph_random import Draws, Floats
from lw2g_benchmarks.glyph_shapes import FAMILIES, Painter, grating, shape_field, stroke_mask

__all__ = ["PRETRAINING_FAMILIES", "PRETRAINING_NAMESPACE"]

PRETRAINING_NAMESPACE = "pretraining"


def paint_markers(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint characters with a broad, blurred pen that fills the frame."""
    view = affine_view(sample, size, scale=(0.75, 1.0))
    ink, ground = contrast_pair(sample)
    image = np.broadcast_to(ground[:, :, None, None], (len(ground), 3, size, size)).copy()
    paint(image, ink, stroke_mask(prototype, sample, view, width=(0.1, 0.22), softness=0.25))
    return image


def paint_outlines(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint the contours of solids."""
    view = affine_view(sample, size)
    ink, ground = contrast_pair(sample)
    solid, _ = shape_field(prototype, sample, view)
    image = np.broadcast_to(ground[:, :, None, None], (len(ground), 3, size, size)).copy()
    paint(image, ink, edge(sample.plane(0.03, 0.08) - np.abs(solid), 2.0 / size))
    return image


def paint_rings(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint concentric waves around a centre, with petals of an order that the class fixes.

    Pairs of numbers are the ranges of draws, as the family defines them; angles and phases are in turns.
    """
    x, y = affine_view(sample, size, turns=0.5, shift=0.3)
    radius = np.sqrt(x * x + y * y) + np.float32(1e-3)  # never 0: it divides
    cosine = x / radius
    sinus = y / radius
    order = np.floor(prototype.plane(0.0, 6.0))
    # the real part of (cosine + i sinus) ** order is the cosine of order times the angle (de Moivre);
    # multiplied out, because no library cosine gives the same bits everywhere
    real = np.ones_like(radius)
    imaginary = np.zeros_like(radius)
    for k in range(5):
        turned_real = real * cosine - imaginary * sinus
        turned_imaginary = real * sinus + imaginary * cosine
        real = np.where(order > k, turned_real, real)
        imaginary = np.where(order > k, turned_imaginary, imaginary)
    petals = real * prototype.plane(0.1, 0.6)
    wave = sine(radius * prototype.plane(0.6, 2.2) + petals + prototype.plane() + sample.plane(-0.05, 0.05))
    ink, ground = contrast_pair(sample, prototype.uniform(1) + sample.uniform(1, -0.25, 0.25))
    image = np.broadcast_to(ground[:, :, None, None], (len(ground), 3, size, size)).copy()
    paint(image, ink, edge(wave, 0.8))
    return image


def paint_stamps(prototype: Draws, sample: Draws, size: int) -> Floats:
    """Paint characters over textures; both belong to the class."""
    ink, ground = contrast_pair(sample)
    veil = hue_colour(sample.uniform(1), sample.uniform(1), sample.uniform(1))
    image = np.broadcast_to(ground[:, :, None, None], (len(ground), 3, size, size)).copy()
    view = affine_view(sample, size, turns=0.015, shift=0.0, scale=(0.95, 1.05))
    paint(image, veil, grating(prototype, sample, view) * sample.plane(0.2, 0.7))
    paint(image, ink, stroke_mask(prototype, sample, affine_view(sample, size)))
    return image


PRETRAINING_FAMILIES: Mapping[str, Painter] = {
    **FAMILIES,
    "markers": paint_markers,
    "outlines": paint_outlines,
    "rings": paint_rings,
    "stamps": paint_stamps,
}
