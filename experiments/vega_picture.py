"""A Vega-Lite picture as SVG that is read in a light and in a dark scheme."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["as_svg", "readable"]

_DARK = """<style>@media (prefers-color-scheme: dark) {
text { fill: #c9d1d9 } svg > rect { fill: #1c1f25 }
.role-axis-grid line, path.background[stroke] { stroke: #343941 }
.role-axis-tick line, .role-axis-domain line { stroke: #7d8590 }
.mark-rule line[stroke="black"] { stroke: #c9d1d9 }
.role-legend-symbol path[fill="black"] { fill: #c9d1d9 }
.role-legend-symbol path[stroke="black"] { stroke: #c9d1d9 }
}</style>"""
_WIDER = 1.08
"""Letters of a reader's font may be wider than those that the places were computed for."""
_SIZE, _SHOWN = 12, 600
"""The height of letters, of a picture 440 wide at most; and its width on a wide screen, in pixels."""
_LETTERS = {
    "axis": {"labelFontSize": _SIZE, "titleFontSize": _SIZE},
    "header": {"labelFontSize": _SIZE, "titleFontSize": _SIZE},
    "legend": {"labelFontSize": _SIZE, "titleFontSize": _SIZE, "labelLimit": 240},
}


def as_svg(page: dict[str, Any]) -> str:
    """Return a Vega-Lite specification as SVG."""
    import vl_convert

    config = page.get("config", {})
    letters = {part: sizes | config.get(part, {}) for part, sizes in _LETTERS.items()}
    return readable(str(vl_convert.vegalite_to_svg(page | {"config": config | letters})))


def readable(svg: str) -> str:
    """Return a drawing of Vega with room for wider letters at its right, as wide as the other pictures.

    It has colours for both schemes.
    """
    head = re.match(r"<svg [^>]*>", svg)
    if head is None:
        raise ValueError("this is no drawing of Vega")
    width = int(re.search(r'width="(\d+)"', head[0])[1])  # type: ignore[index]
    wider = round(width * _WIDER)
    rect = re.compile(rf'<rect width="{width}"')
    opened = re.sub(r' (width|height)="\d+"', "", head[0]).replace(f'"0 0 {width} ', f'"0 0 {wider} ')
    opened = opened.replace("<svg", f'<svg width="{_SHOWN}"')
    return opened + _DARK + rect.sub(f'<rect width="{wider}"', svg[head.end() :], count=1)
