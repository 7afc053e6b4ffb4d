"""Registers the carries; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import CarryComponent, hookimpl, lazy
from lw2g_carries.options import NoOptions

__all__ = ["AFFINE", "AUTO", "GATED", "NONE", "SHIFT", "lw2g_carries"]

NONE = CarryComponent(
    name="none",
    config=NoOptions,
    summary="statistics of old classes stay where they were",
    build=lazy("lw2g_carries.carries:candidates", name="none"),
)

SHIFT = CarryComponent(
    name="shift",
    config=NoOptions,
    summary="a class mean moves by the drift of the images near it; covariances stay (SDC)",
    citation="Yu et al., Semantic Drift Compensation for Class-Incremental Learning, CVPR 2020",
    build=lazy("lw2g_carries.carries:candidates", name="shift"),
)

AFFINE = CarryComponent(
    name="affine",
    config=NoOptions,
    summary="means and covariances move by a linear map, shrunk towards the identity (LDC in closed form)",
    citation="Gomez-Villa et al., Exemplar-free Continual Representation Learning via Learnable Drift "
    "Compensation, ECCV 2024",
    build=lazy("lw2g_carries.carries:candidates", name="affine"),
)

AUTO = CarryComponent(
    name="auto",
    config=NoOptions,
    summary="whichever motion of none, shift and affine held-out classes of the task choose",
    build=lazy("lw2g_carries.carries:candidates", name="auto"),
)

GATED = CarryComponent(
    name="gated",
    config=NoOptions,
    summary="another carry's motion, of which classes far from the new ones take less; covariances stay",
    build=lazy("lw2g_carries.carries:Gated"),
    wraps=True,
)


@hookimpl
def lw2g_carries() -> list[CarryComponent]:
    """Return the carries."""
    return [AFFINE, AUTO, GATED, NONE, SHIFT]
