"""The drawings of figures: the short form of ``figures.toml``, expanded to Vega-Lite without data.

Colours are the page's CSS variables, so that one drawing serves light, dark and print; shades are opacities.
The page inserts the data (``rows`` and a figure's extras) and what begins with ``@``: the scales of the
table's rows and of a figure's key, the tooltip of its fields, the panel's name, and the axis of accuracies,
which ends at 100; where it does not begin at 0, ``@from`` at the end of its title says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["drawing_of"]

Spec = dict[str, Any]
_TYPES: Mapping[str, Spec] = {
    "Q": {"type": "quantitative"},
    "V": {"type": "quantitative", "scale": {"zero": False, "padding": 8}},
    "D": {"type": "quantitative", "scale": {"padding": 40}},
    "A": {"type": "quantitative", "scale": "@accuracy"},
    "T": {"type": "ordinal", "axis": {"labelAngle": 0, "labelOverlap": True}},
    "B": {"type": "nominal", "axis": None, "sort": None, "scale": {"padding": 0}},
    "R": {"type": "nominal", "legend": None},
    "K": {"type": "nominal", "legend": None},
}
"""Letters after a field: quantity, quantity whose axis need not start at 0, difference (a bar alone has room
on both sides), accuracy in percent, task, band of a row, row of the table, entry of the figure's key."""
_SCALES = {"R": {"color": "@rows", "shape": "@shapes", "strokeDash": "@dashes"}}
_SCALES["K"] = {"color": "@key", "fill": "@key", "shape": "@forms"}
_MARKS: Mapping[str, Spec] = {
    "point": {"filled": True, "opacity": 1, "size": 70},
    "rule": {"stroke": "muted"},
    "text": {"fill": "ink"},
}
_COLOURS = {"fill", "stroke"}
_BELOW = {"yOffset": {"expr": "bandwidth('y') / 2 - 8"}}
_LABEL: Spec = {  # a row's name stands above its bar, to use the whole width
    "data": {"name": "labels"},
    "mark": {
        "type": "text",
        "align": "left",
        "baseline": "bottom",
        "lineHeight": 14,
        "dy": {"expr": "bandwidth('y') / 2 - 3 - 14 * length(datum.label)"},
        "fill": "var(--ink)",
    },
    "encoding": {"x": {"value": 0}, "text": {"field": "label"}, "y": {"field": "row", **_TYPES["B"]}},
}


def drawing_of(short: Mapping[str, Any], layout: str) -> Spec:
    """Return the Vega-Lite specification of a drawing's short form.

    Args:
        short: ``x`` and ``y``, the titles of the axes; ``encoding``, what all layers share; ``layers``;
            further keys as they are.
        layout: The figure's layout; with ``rows`` the names of rows are added.
    """
    titles = {"x": short.get("x"), "y": short.get("y")}
    shared = {name: _channel(name, value, titles) for name, value in short.get("encoding", {}).items()}
    layers = [_layer(layer, titles) for layer in short["layers"]]
    if layout == "rows":
        layers.append(_LABEL)
    spec = {key: value for key, value in short.items() if key not in ("x", "y", "encoding", "layers")}
    return {**spec, "encoding": shared, "layer": layers}


def _layer(short: Mapping[str, Any], titles: Spec) -> Spec:
    """Return a layer: ``f`` or ``field:letter`` makes a key a channel, others belong to the mark."""
    layer: Spec = {"mark": {"type": short["mark"]}, "encoding": {}}
    if "data" in short:
        layer["data"] = short["data"]
        if isinstance(short["data"], str):  # the name of a figure's extra
            layer["data"] = {"name": short["data"]}
    if "transform" in short:
        layer["transform"] = short["transform"]
    for name, value in {**_MARKS.get(short["mark"], {}), **short}.items():
        if name in ("mark", "data", "transform"):
            continue
        if name == "below":
            layer["mark"] |= _BELOW
        elif name == "tip":
            layer["encoding"]["tooltip"] = "@tip"
        elif _is_channel(value):
            layer["encoding"][name] = _channel(name, value, titles)
        elif name in _COLOURS and value:
            layer["mark"][name] = f"var(--{value})"
        else:
            layer["mark"][name] = value
    return layer


def _is_channel(value: Any) -> bool:
    if isinstance(value, dict):
        return not value.keys() <= {"expr", "band"}
    return isinstance(value, str) and ":" in value


def _channel(name: str, value: Any, titles: Spec) -> Spec:
    """Return the encoding of a channel; all along an axis have its title, or Vega-Lite leaves it out."""
    parts = value if isinstance(value, dict) else {"f": value}
    channel: Spec = {}
    for key, part in parts.items():
        channel[key] = None if part == "none" else part  # TOML has no null
    field, _, letter = channel.pop("f", "").partition(":")
    if field:
        channel = {"field": field, **_TYPES.get(letter, {}), **channel}
    if name in _SCALES.get(letter, {}):
        channel["scale"] = _SCALES[letter][name]
    if name in titles and "value" not in channel:
        channel["title"] = titles[name]
    return channel
