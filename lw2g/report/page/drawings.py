"""The drawings of figures: Vega-Lite specifications without data.

Colours are the page's CSS variables, so that one drawing serves light, dark and print; shades are opacities.
The page inserts the data (``rows`` and a figure's extras), the scales of the table's rows (``@rows``,
``@dashes``, ``@shapes``) and the tooltip of a figure's fields (``@tip``).
"""

from __future__ import annotations

from typing import Any

__all__ = ["BARS", "CLASSES", "CURVES", "DECISIONS", "DIFFERENCES", "FLOW", "FORGETTING", "MAP", "NULLS"]
__all__ += ["PAPER", "PARETO", "RETRIEVAL", "TIMES"]

Spec = dict[str, Any]

_INK, _MUTED, _LINE = "var(--ink)", "var(--muted)", "var(--line)"
_BLUE, _RED, _GREEN = "var(--blue)", "var(--red)", "var(--green)"
_ROWS: Spec = {"field": "row", "type": "nominal", "legend": None, "scale": "@rows"}


def _number(field: str, title: str | None = None, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _task(field: str, title: str, **more: Any) -> Spec:
    return {
        "field": field,
        "type": "ordinal",
        "title": title,
        "axis": {"labelAngle": 0, "labelOverlap": True},
        **more,
    }


_LEGEND: Spec = {
    "orient": "top",
    "title": None,
    "columns": {"expr": "width < 420 ? 2 : 5"},
    "labelLimit": 300,
}


def _parts(domain: list[str], colours: list[str], **more: Any) -> Spec:
    scale = {"domain": domain, "range": colours}
    return {"type": "nominal", "legend": _LEGEND, "scale": scale, **more}


def _kinds(*pairs: tuple[str, str]) -> Spec:
    return _parts([name for name, _ in pairs], [colour for _, colour in pairs])


_BELOW: Spec = {"yOffset": {"expr": "bandwidth('y') / 2 - 8"}}
_LABEL: Spec = {  # a row's name stands above its bar, to use the whole width
    "data": {"name": "labels"},
    "mark": {
        "type": "text",
        "align": "left",
        "baseline": "bottom",
        "lineHeight": 14,
        "dy": {"expr": "bandwidth('y') / 2 - 3 - 14 * length(datum.label)"},
        "fill": _INK,
    },
    "encoding": {
        "x": {"value": 0},
        "text": {"field": "label"},
        "y": {"field": "row", "type": "nominal", "axis": None, "sort": None},
    },
}
_BAND: Spec = {"field": "row", "type": "nominal", "axis": None, "sort": None, "scale": {"padding": 0}}
_ZERO: Spec = {
    "data": {"values": [{}]},
    "mark": {"type": "rule", "stroke": _INK, "strokeOpacity": 0.5},
    "encoding": {"x": {"datum": 0}},
}


def _bars(part: Spec) -> Spec:
    bar = {"type": "bar", "height": 11, "cornerRadiusEnd": 2, **_BELOW}
    return {
        "layer": [
            {
                "mark": bar,
                "encoding": {
                    "x": _number("value", axis={"format": "~s", "tickCount": 5}),
                    "y": _BAND,
                    "color": {"field": "part", **part},
                    "tooltip": "@tip",
                },
            },
            _LABEL,
        ]
    }


_STORED = (("prompts", _BLUE), ("bases", _RED), ("parameters", _GREEN), ("statistics", "var(--c4)"))
_COUNTED = (("training", _BLUE), ("inference", _GREEN))
BARS = _bars(_kinds(*_STORED, *_COUNTED) | {"legend": None})
TIMES = _bars(
    _kinds(
        ("evidence", _RED),
        ("training", _BLUE),
        ("subspace", "var(--c4)"),
        ("evaluation", _GREEN),
        ("other", _MUTED),
    )
)

CURVES: Spec = {
    "height": 380,
    "encoding": {
        "x": _number(
            "after",
            "after task",
            axis={"tickMinStep": 1, "format": "d"},
            scale={"zero": False, "padding": 10, "nice": False},
        ),
        "color": _ROWS,
    },
    "layer": [
        {
            "transform": [{"filter": "datum.n > 1"}],
            "mark": {"type": "area", "opacity": 0.18, "aria": False},
            "encoding": {
                "y": _number("low", "mean accuracy over the tasks so far (percent)", scale={"zero": False}),
                "y2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                "y": _number("accuracy"),
                "strokeDash": {"field": "row", "type": "nominal", "legend": None, "scale": "@dashes"},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 46, "opacity": 1},
            "encoding": {
                "y": _number("accuracy"),
                "shape": {"field": "row", "type": "nominal", "legend": None, "scale": "@shapes"},
                "tooltip": "@tip",
            },
        },
    ],
}

_COST = _number("cost", axis={"format": "~s", "tickCount": 5}, scale={"zero": False, "padding": 14})
_FAA = _number("faa", "FAA (percent)", scale={"zero": False, "padding": 12})
PARETO: Spec = {
    "height": 260,
    "layer": [
        {
            "data": {"name": "best"},
            "mark": {"type": "line", "interpolate": "step-after", "stroke": _MUTED, "strokeDash": [4, 3]},
            "encoding": {"x": _COST, "y": _FAA, "order": {"field": "cost", "type": "quantitative"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 120, "opacity": 0.95},
            "encoding": {
                "x": _COST,
                "y": _FAA,
                "color": _ROWS,
                "shape": {"field": "row", "type": "nominal", "legend": None, "scale": "@shapes"},
                "tooltip": "@tip",
            },
        },
    ],
}

PAPER: Spec = {
    "layer": [
        {
            "mark": {"type": "rule", "stroke": _MUTED, **_BELOW},
            "encoding": {"x": _number("theirs", scale={"zero": False}), "x2": {"field": "ours"}, "y": _BAND},
        },
        {
            "mark": {
                "type": "point",
                "shape": "diamond",
                "size": 90,
                "stroke": _RED,
                "strokeWidth": 2,
                **_BELOW,
            },
            "encoding": {"x": _number("theirs"), "y": _BAND, "tooltip": "@tip"},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 80, "fill": _BLUE, "opacity": 1, **_BELOW},
            "encoding": {"x": _number("ours"), "y": _BAND, "tooltip": "@tip"},
        },
        _LABEL,
    ]
}
DIFFERENCES: Spec = {
    "layer": [
        _ZERO,
        {
            "mark": {"type": "rule", "stroke": _BLUE, "strokeWidth": 3, "strokeOpacity": 0.5, **_BELOW},
            "encoding": {"x": _number("low"), "x2": {"field": "high"}, "y": _BAND},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 80, "fill": _BLUE, "opacity": 1, **_BELOW},
            "encoding": {"x": _number("mean", axis={"tickCount": 5}), "y": _BAND, "tooltip": "@tip"},
        },
        _LABEL,
    ]
}


def _map(x: Spec, y: Spec, value: str, full: float, colour: Spec, number: str = ".0f") -> Spec:
    wide = {"expr": "bandwidth('x') < 17 ? 0 : 1"}
    size = {"expr": "clamp(bandwidth('x') * 0.36, 7, 12)"}
    return {
        "encoding": {"x": x, "y": y},
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 2, "stroke": "var(--card)", "strokeWidth": 1.5},
                "encoding": {
                    "fill": colour,
                    "fillOpacity": {
                        **_number(value),
                        "legend": None,
                        "scale": {"domain": [0, full], "range": [0.04, 0.8], "clamp": True},
                    },
                    "tooltip": "@tip",
                },
            },
            {
                "mark": {"type": "text", "fill": _INK, "fontSize": size, "opacity": wide, "aria": False},
                "encoding": {"text": {"field": value, "type": "quantitative", "format": number}},
            },
        ],
    }


MAP = _map(_task("after", "after task"), _task("task", "task"), "value", 100, {"value": _BLUE})
RETRIEVAL = _map(
    _task("retrieved", "retrieved task"),
    _task("task", "task of the image"),
    "share",
    100,
    {
        "condition": {"test": "datum.same", "value": _GREEN},
        "value": _RED,
    },
)
RETRIEVAL["layer"].insert(
    1,
    {
        "transform": [{"filter": "datum.same"}],
        "mark": {"type": "rect", "fill": None, "stroke": _GREEN, "cornerRadius": 2, "aria": False},
        "encoding": {},
    },
)

FORGETTING: Spec = {
    "height": 240,
    "encoding": {"x": _task("task", "task")},
    "layer": [
        {
            "mark": {"type": "bar", "width": {"band": 0.34}, "fill": _RED, "fillOpacity": 0.35},
            "encoding": {
                "y": _number("final", "accuracy (percent)", scale={"zero": False, "padding": 8}),
                "y2": {"field": "best"},
                "tooltip": "@tip",
            },
        },
        {
            "mark": {"type": "tick", "stroke": _MUTED, "fill": _MUTED, "thickness": 2},
            "encoding": {"y": _number("learned")},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "fill": _BLUE, "opacity": 1},
            "encoding": {"y": _number("final"), "tooltip": "@tip"},
        },
    ],
}

_CLASS = {"nice": False, "zero": False}


def _blocks(axis: str) -> Spec:
    return {
        "data": {"name": "blocks"},
        "mark": {"type": "rule", "stroke": _LINE, "strokeWidth": 1, "aria": False},
        "encoding": {axis: {"field": "at", "type": "quantitative"}},
    }


_END = {"data": {"name": "size"}, "mark": {"type": "point", "opacity": 0, "aria": False}}
CLASSES: Spec = {
    "layer": [
        {
            **_END,
            "encoding": {
                "x": _number("at", "predicted class", scale={**_CLASS, "domainMin": 0}),
                "y": _number("at", "true class", scale={**_CLASS, "domainMin": 0, "reverse": True}),
            },
        },
        _blocks("x"),
        _blocks("y"),
        {
            "transform": [
                {"calculate": "datum.predicted + 1", "as": "right"},
                {"calculate": "datum.true + 1", "as": "below"},
            ],
            "mark": {"type": "rect", "aria": False},
            "encoding": {
                "x": _number("predicted", "predicted class"),
                "x2": {"field": "right"},
                "y": _number("true", "true class"),
                "y2": {"field": "below"},
                "fill": {
                    "field": "kind",
                    **_kinds(
                        ("right", _BLUE), ("wrong class, right task", "var(--c4)"), ("wrong task", _RED)
                    ),
                },
                "fillOpacity": {
                    **_number("share"),
                    "legend": None,
                    "scale": {"type": "sqrt", "domain": [0, 60], "range": [0.12, 1], "clamp": True},
                },
                "tooltip": "@tip",
            },
        },
    ],
}

_DECIDED = _kinds(("grow", _BLUE), ("reuse", _RED))
_ACROSS: Spec = {"axis": None, "scale": {"domain": [-0.2, 1.2], "nice": False}}
_DOWN = _number("y", axis=None, scale={"reverse": True, "nice": False})
FLOW: Spec = {
    "layer": [
        {
            "data": {"name": "paths"},
            "mark": {
                "type": "line",
                "interpolate": "basis",
                "strokeWidth": 7,
                "opacity": 0.6,
                "strokeCap": "round",
            },
            "encoding": {
                "x": {**_number("x"), **_ACROSS},
                "y": _DOWN,
                "color": {"field": "decision", **_DECIDED},
                "detail": {"field": "task"},
                "order": {"field": "x"},
            },
        },
        {
            "transform": [
                {"calculate": "datum.task - 0.5", "as": "y"},
                {"calculate": "'task ' + datum.task", "as": "name"},
            ],
            "mark": {"type": "text", "align": "right", "fill": _INK},
            "encoding": {
                "x": {"datum": -0.03, **_ACROSS},
                "y": _DOWN,
                "text": {"field": "name"},
                "tooltip": "@tip",
            },
        },
        {
            "data": {"name": "sets"},
            "mark": {"type": "text", "align": "left", "fill": _INK},
            "encoding": {"x": {"datum": 1.03, **_ACROSS}, "y": _DOWN, "text": {"field": "label"}},
        },
    ],
}

_ARRIVED: Spec = {
    "x": _task("task", "task that arrived", sort=None),
    "xOffset": {"field": "set", "type": "ordinal", "sort": None},
}
_SPREAD = _number("value", scale={"zero": False, "padding": 6})
DECISIONS: Spec = {
    "height": 300,
    "layer": [
        {
            "mark": {"type": "rule", "stroke": _MUTED},
            "encoding": {**_ARRIVED, "y": _SPREAD | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "isValid(datum.threshold)"}],
            "mark": {"type": "tick", "fill": _GREEN, "stroke": _GREEN, "thickness": 2, "size": 9},
            "encoding": {**_ARRIVED, "y": _number("threshold")},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 42, "opacity": 1},
            "encoding": {
                **_ARRIVED,
                "y": _number("value"),
                "fill": {
                    "field": "kind",
                    **_kinds(("not taken", _BLUE), ("reused", _RED), ("excluded", _MUTED)),
                },
                "tooltip": "@tip",
            },
        },
    ],
}
_MEASURED: Spec = {"field": "what", "type": "nominal", "sort": None, "legend": _LEGEND}
_TINTS = [_INK, _BLUE, _GREEN, _RED, "var(--c4)", "var(--c5)", "var(--c3)"]
_FORMS = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-left"]
NULLS: Spec = {
    "height": 300,
    "encoding": _ARRIVED,
    "layer": [
        {
            "transform": [
                {
                    "aggregate": [
                        {"op": "min", "field": "value", "as": "low"},
                        {"op": "max", "field": "value", "as": "high"},
                    ],
                    "groupby": ["task", "set"],
                }
            ],
            "mark": {"type": "rule", "stroke": _LINE},
            "encoding": {"y": _SPREAD | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1},
            "encoding": {
                "y": _number("value"),
                "fill": {**_MEASURED, "scale": {"range": _TINTS}},
                "shape": {**_MEASURED, "scale": {"range": _FORMS}},
                "tooltip": "@tip",
            },
        },
    ],
}
