"""Draw the pictures of docs/concepts.md and docs/frozen.md: SVGs on a card, light or dark by preference.

python scripts/draw_concepts.py docs/pictures

Each has a wide form, NAME.svg, and one for telephones, NAME-narrow.svg, whose halves stand below each other.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

STYLE = """
.card{fill:#fdfdfb;stroke:#d5d5d0} .ink{fill:#26282b} .soft{fill:#5f666d}
.line{stroke:#26282b} .thin{stroke:#9aa0a6}
.grey{fill:#e4e6e8;stroke:#b8bdc2} .a{fill:#41699a} .b{fill:#b25a00} .c{fill:#2f7d32} .d{fill:#b0427c}
.sa{stroke:#41699a} .sb{stroke:#b25a00} .sc{stroke:#2f7d32} .sd{stroke:#b0427c} .on{fill:#ffffff}
@media (prefers-color-scheme: dark){
.card{fill:#1f2226;stroke:#42474d} .ink{fill:#e8e8e6} .soft{fill:#a9b0b7}
.line{stroke:#e8e8e6} .thin{stroke:#6c737a}
.grey{fill:#353a40;stroke:#555c64} .a{fill:#6f9fd0} .b{fill:#f0954a} .c{fill:#6fbf6f} .d{fill:#d977ab}
.sa{stroke:#6f9fd0} .sb{stroke:#f0954a} .sc{stroke:#6fbf6f} .sd{stroke:#d977ab} .on{fill:#14161a}}
"""
WIDTH, HEIGHT, NARROW = 640, 240, 380
"""The wide form's width and height, and the width of the narrow one, in pixels."""


def text(x: float, y: float, words: str, *, kind: str = "ink", anchor: str = "middle", size: int = 14) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" class="{kind}" font-size="{size}" text-anchor="{anchor}">{words}</text>'
    )


def box(x: float, y: float, width: float, height: float, *, kind: str = "grey") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{kind}"/>'


def tag(x: float, y: float, words: str, kind: str, *, width: float = 54) -> str:
    return box(x, y, width, 26, kind=kind) + text(x + width / 2, y + 18, words, kind="on")


def line(
    x: float, y: float, to_x: float, to_y: float, *, kind: str = "line", dash: str = "", wide: float = 2
) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {ends} class="{kind}" stroke-width="{wide:g}"{dashed}/>'


def arrow(x: float, y: float, to_x: float, to_y: float, *, kind: str = "line", wide: float = 2.5) -> str:
    """Return a line with a head that has the line's colour."""
    angle = math.atan2(to_y - y, to_x - x)
    sides = [
        (to_x - 11 * math.cos(angle + turn), to_y - 11 * math.sin(angle + turn)) for turn in (0.42, -0.42)
    ]
    (a, b), (c, d) = sides
    fill = {"line": "ink", "thin": "soft"}.get(kind, kind[1:])
    head = f'<polygon points="{to_x:g},{to_y:g} {a:.1f},{b:.1f} {c:.1f},{d:.1f}" class="{fill}"/>'
    return line(x, y, (a + c) / 2, (b + d) / 2, kind=kind, wide=wide) + head


def arc(x: float, y: float, radius: float, start: float, end: float, kind: str) -> str:
    """Return an arc around a point; degrees, anticlockwise from the right."""
    (a, b), (c, d) = (
        (x + radius * math.cos(math.radians(turn)), y - radius * math.sin(math.radians(turn)))
        for turn in (start, end)
    )
    path = f"M{a:.1f} {b:.1f}A{radius:g} {radius:g} 0 0 0 {c:.1f} {d:.1f}"
    return f'<path d="{path}" class="{kind}" fill="none" stroke-width="2"/>'


def below(parts: list[str], narrow: bool, x: float, y: float) -> list[str]:
    """Return the right half as it is, or in the narrow form moved by (x, y) to stand below the left one."""
    return [f'<g transform="translate({x:g} {y:g})">', *parts, "</g>"] if narrow else parts


def note(lines: tuple[str, ...], narrow: bool, x: float, y: float) -> list[str]:
    """Return a remark in one line around ``x``, or in the narrow form in several from the left."""
    if not narrow:
        return [text(x, y, " ".join(lines), kind="soft", size=12)]
    return [
        text(34, y + 18 * at, words, kind="soft", anchor="start", size=12) for at, words in enumerate(lines)
    ]


def a_set(narrow: bool) -> list[str]:
    parts = [text(30, 44, "a set: prompts for some blocks", anchor="start")]
    for i in range(6):
        parts += [box(30 + i * 38, 130, 30, 64), text(45 + i * 38, 167, f"{i}", kind="soft", size=12)]
        if i < 5:
            parts += [
                arrow(45 + i * 38, 92, 45 + i * 38, 126, kind="sa"),
                box(33 + i * 38, 64, 24, 24, kind="a"),
            ]
    parts += [text(30, 216, "blocks of the frozen backbone", kind="soft", anchor="start", size=12)]
    sets = {"#0": (500, 60, "a"), "#1": (500, 122, "b"), "#2": (500, 184, "c")}
    right = []
    for i, (name, kind) in enumerate((("#0", "sa"), ("#1", "sb"), ("#0", "sa"), ("#2", "sc"), ("#1", "sb"))):
        y = 88 + i * 24
        right += [text(352, y + 5, f"task {i + 1}", size=13, anchor="end")]
        right += [arrow(362, y, 494, sets[name][1] + 13 + (i - 2) * 1.5, kind=kind, wide=1.6)]
    right += [tag(x, y, name, kind) for name, (x, y, kind) in sets.items()]
    right += [text(527, 44, "pool", kind="soft")]
    return parts + below(right, narrow, -270, 200)


def a_site(narrow: bool) -> list[str]:
    parts = [text(34, 40, "one head of one block", kind="soft", anchor="start")]
    parts += [
        box(60, 74, 150, 30),
        text(135, 94, "query q of a token"),
        text(135, 126, "activation", kind="soft", size=12),
    ]
    parts += [box(60, 150, 150, 30, kind="b"), text(135, 170, "prefix key k", kind="on")]
    parts += [text(135, 202, "parameter (of the set)", kind="soft", size=12)]
    parts += [arrow(214, 89, 300, 118), arrow(214, 165, 300, 136), text(330, 132, "q · k", size=18)]
    logit = [box(436, 110, 120, 34), text(496, 132, "attention logit")]
    parts += [arrow(330, 144, 330, 206) if narrow else arrow(362, 127, 430, 127)]
    parts += below(logit, narrow, -190, 100)
    parts += [
        line(40, 62, 40, 115, kind="sc", wide=3),
        text(48, 62, "tap: here q is read", kind="c", anchor="start", size=12),
    ]
    words = "site = parameter + the axis that multiplies", "an activation + the tap"
    return parts + note(words, narrow, 320, 272 if narrow else 224)


def a_space(narrow: bool) -> list[str]:
    draw = random.Random(4)
    x0, y0, turn = 190, 128, math.radians(24)
    parts = [text(34, 36, "activations of a finished task", kind="soft", anchor="start")]
    for _ in range(90):
        along, across = draw.gauss(0, 62), draw.gauss(0, 13)
        x = x0 + along * math.cos(turn) + across * math.sin(turn)
        y = y0 - along * math.sin(turn) + across * math.cos(turn)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="a" fill-opacity="0.55"/>')
    parts.append(arrow(x0, y0, x0 + 150 * math.cos(turn), y0 - 150 * math.sin(turn), kind="sb", wide=3))
    parts.append(text(338, 58, "S", kind="b", size=18))
    right = [text(404, 36, "energy of each direction", kind="soft", anchor="start")]
    for i, height in enumerate((104, 46, 13, 8, 5, 3)):
        kept = i < 2
        right.append(box(412 + i * 30, 186 - height, 22, height, kind="b" if kept else "grey"))
    right += [line(404, 186, 596, 186, kind="thin", wide=1), text(437, 208, "kept: 95 %", kind="b", size=12)]
    right += [text(530, 208, "free to move in", kind="soft", size=12)]
    return parts + below(right, narrow, -370, 200)


def the_hindrance(narrow: bool) -> list[str]:
    halves = []
    for x, name, kind, degrees, words in (
        (76, "S of an old set", "b", 32, "HFC"),
        (386, "S_pre, pre-trained", "c", 52, "HFC_pre"),
    ):
        y, length = 178, 150
        turn = math.radians(90 - degrees)  # HFC is the angle between g and its part outside
        tip_x, tip_y = x + length * math.cos(turn), y - length * math.sin(turn)
        parts = [
            arrow(x, y, x + 190, y, kind=f"s{kind}", wide=3),
            text(x + 92, y + 22, name, kind=kind, size=13),
        ]
        parts += [line(tip_x, tip_y, x, tip_y, kind="thin", dash="4 4", wide=1.2)]
        parts += [line(tip_x, tip_y, tip_x, y, kind="thin", dash="4 4", wide=1.2)]
        parts += [
            arrow(x, y, x, tip_y, kind="sa"),
            text(x - 8, (y + tip_y) / 2, "outside", kind="a", anchor="end", size=12),
        ]
        parts += [arrow(x, y, tip_x, tip_y), text(tip_x + 14, tip_y, "g")]
        parts += [arc(x, y, 56, 90 - degrees, 90, "sd")]
        middle = math.radians(90 - degrees / 2)
        parts += [text(x + 74 * math.cos(middle) + 8, y - 74 * math.sin(middle), words, kind="d", size=13)]
        halves.append(parts)
    left, right = halves
    lines = "Z = HFC − HFC_pre: what the old set hinders", "beyond pre-trained knowledge"
    return left + below(right, narrow, -310, 160) + note(lines, narrow, 320, 390 if narrow else 224)


def a_policy(narrow: bool) -> list[str]:
    parts = [text(34, 36, "evidence: Z and its error, per live set", kind="soft", anchor="start")]
    zero = 190
    parts += [line(zero, 54, zero, 178, kind="thin", dash="4 4"), text(zero, 198, "0", kind="soft", size=12)]
    for i, (name, kind, z, error) in enumerate(
        (("#0", "a", 2.1, 0.5), ("#1", "b", -3.4, 0.7), ("#2", "c", 0.9, 0.6))
    ):
        y, x = 66 + i * 42, zero + z * 26
        parts += [
            tag(34, y - 13, name, kind, width=40),
            line(x - error * 26, y, x + error * 26, y, kind=f"s{kind}", wide=3),
        ]
        parts += [f'<circle cx="{x:g}" cy="{y}" r="6" class="{kind}"/>']
    right = [arrow(286, 108, 352, 108), box(358, 82, 96, 52), text(406, 113, "policy")]
    right += [arrow(458, 100, 512, 78), arrow(458, 116, 512, 140)]
    right += [box(516, 60, 104, 34, kind="b"), text(568, 82, "Reuse(#1)", kind="on")]
    right += [box(516, 124, 104, 34), text(568, 146, "Grow()")]
    lines = "min: grow if every Z is above 0,", "else reuse the least"
    return parts + below(right, narrow, -252, 156) + note(lines, narrow, 406, 344 if narrow else 198)


def a_constraint(narrow: bool) -> list[str]:
    halves = []
    for x, title, keep in (
        (60, "orthogonal: nothing inside S", 0.0),
        (370, "cpk: a share of what is inside S_pre", 0.5),
    ):
        y = 176
        parts = [text(x - 20, 36, title, kind="soft", anchor="start")]
        parts += [arrow(x, y, x + 200, y, kind="sb" if not keep else "sc", wide=3)]
        parts += [
            text(x + 206, y + 5, "S" if not keep else "S_pre", kind="b" if not keep else "c", anchor="start")
        ]
        parts += [
            arrow(x, y, x + 140, y - 100, kind="thin"),
            text(x + 152, y - 94, "step", kind="soft", anchor="start"),
        ]
        parts += [line(x + 140, y - 100, x + 140 * keep, y - 100, kind="thin", dash="4 4", wide=1.4)]
        parts += [arrow(x, y, x + 140 * keep, y - 100, kind="sa", wide=3)]
        parts += [text(x + 140 * keep + 10, y - 114, "what is done", kind="a", size=12, anchor="start")]
        halves.append(parts)
    left, right = halves
    left += [text(40, 210, "old queries then get the same logits", kind="soft", anchor="start", size=12)]
    return left + below(right, narrow, -310, 216)


def a_frozen_answer(narrow: bool) -> list[str]:
    parts = [text(30, 36, "one forward of the frozen backbone", kind="soft", anchor="start")]
    parts += [box(30, 88, 46, 46), text(53, 116, "image", size=12), arrow(80, 111, 100, 111)]
    for i in range(4):
        x = 106 + i * 46
        last = i == 3
        parts += [box(x, 70, 34, 82), text(x + 17, 116, "norm" if last else "block", kind="soft", size=11)]
        parts += [line(x + 17, 152, x + 17, 184, kind="thin")]
        parts += [box(x + 2, 184, 13, 18, kind="a"), box(x + 19, 184, 13, 18, kind="b")]
    parts += [text(30, 224, "of each layer:", kind="soft", size=12, anchor="start")]
    parts += [text(120, 224, "class token,", kind="a", size=12, anchor="start")]
    parts += [text(200, 224, "mean of patches", kind="b", size=12, anchor="start")]
    parts += [arrow(124, 236, 124, 284) if narrow else arrow(290, 193, 340, 193)]
    right = [box(346, 172, 96, 42, kind="c"), text(394, 198, "sums", kind="on")]
    right += [text(394, 232, "ridge or lda", kind="soft", size=12)]
    right += [arrow(446, 186, 490, 140), arrow(446, 193, 490, 193)]
    right += [text(496, 128, "glass, 83 %", anchor="start")]
    right += [text(496, 146, "scores / temperature", kind="soft", size=12, anchor="start")]
    right += [text(496, 194, "or unknown", kind="d", anchor="start")]
    right += [text(496, 212, "by its distance", kind="soft", size=12, anchor="start")]
    return parts + below(right, narrow, -270, 118)


PICTURES = {
    "set": (
        a_set,
        436,
        "Five tasks mapped to three sets of prompts; a set adds prompts to the blocks of a frozen backbone",
    ),
    "site": (
        a_site,
        312,
        "A prefix key of a set multiplies the query of a token: together with the tap they make a site",
    ),
    "space": (
        a_space,
        430,
        "Activations of a task lie mostly along few directions, which span its space S",
    ),
    "hindrance": (
        the_hindrance,
        430,
        "HFC is the angle between a gradient and its part outside a space; Z compares two",
    ),
    "policy": (a_policy, 380, "A policy turns the evidence on every live set into Grow or Reuse"),
    "constraint": (
        a_constraint,
        416,
        "A hard constraint removes a step's part inside S, a soft one shrinks it",
    ),
    "frozen-answer": (
        a_frozen_answer,
        372,
        "Class tokens and means of patches of many layers of one forward go into sums, which answer with a "
        "per cent or call an image unknown",
    ),
}
"""What draws each picture, the height of its narrow form, and what it shows in words."""


def forms() -> dict[str, str]:
    """Return the SVGs by the names of their files."""
    drawn = {}
    for name, (draw, height, title) in PICTURES.items():
        drawn[f"{name}.svg"] = on_card(WIDTH, HEIGHT, title, draw(False))
        drawn[f"{name}-narrow.svg"] = on_card(NARROW, height, title, draw(True))
    return drawn


def on_card(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return parts of a picture as SVG."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    head += f'font-family="Helvetica, Arial, sans-serif"><title>{title}</title><style>{STYLE}</style>'
    card = f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" class="card"/>'
    return f"{head}{card}{''.join(parts)}</svg>\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, drawn in forms().items():
        (folder / file).write_text(drawn, encoding="utf-8")
