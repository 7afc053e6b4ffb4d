"""What training gains over the best frozen head, from packs: table, verdicts and picture.

    python experiments/worth/gains.py            # write docs/worth.md between its marks, and docs/worth.svg
    python experiments/worth/gains.py --print    # print the table and the verdicts

Criteria and distances stand in ``hypotheses.toml``, written before the rows; nothing is judged by hand.
"""

from __future__ import annotations

import argparse
import html
import itertools
import json
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from stream_tables import StreamRun, runs_of, with_interval  # noqa: E402

from lw2g.registry.catalogue import load_catalogue  # noqa: E402
from lw2g.results.bootstrap import holm, over_orders_and_images  # noqa: E402
from lw2g.results.right_answers import RightAnswers  # noqa: E402
from lw2g.results.summaries import Difference  # noqa: E402
from lw2g_store.stored import Stored, stored_runs  # noqa: E402

HERE = Path(__file__).resolve().parent
STORE = ROOT / "experiments" / "store"
PAGE, PICTURE = "docs/worth.md", "docs/worth.svg"
BEGIN, END = "<!-- gains -->", "<!-- end of gains -->"


@attrs.frozen(kw_only=True)
class Gain:
    """A trained method less the best frozen head of its stream, paired by order.

    Attributes:
        stream: The stream.
        method: The trained method.
        head: The frozen head with the highest mean over the same orders.
        apart: The mean difference, with its interval over orders and test images.
    """

    stream: str
    method: str
    head: str
    apart: Difference

    def __str__(self) -> str:
        return f"{with_interval(self.apart)} ({self.apart.n} order{'s' * (self.apart.n > 1)})"


Ends = Mapping[tuple[str, str], Mapping[int, RightAnswers]]
"""The answers by order, of each stream and method by its short name."""


def ends_of(plan: Mapping[str, Any], runs: Sequence[StreamRun]) -> Ends:
    """Return the answers of what the plan names."""
    found: dict[tuple[str, str], dict[int, RightAnswers]] = {}
    for name, method in {**plan["heads"], **plan["methods"]}.items():
        for run in runs:
            if run.size == plan["size"] and run.method == method and run.stream in plan["streams"]:
                found.setdefault((run.stream, name), {})[run.order] = run.answers
    return found


def gain(plan: Mapping[str, Any], ends: Ends, stream: str, method: str) -> Gain | None:
    """Return what a method gains on a stream; None without any pair.

    The best head is sought on the orders that all heads with runs on the stream share with the method (where
    there are none, on those of the head that has most), and the gain is taken over all orders that it shares.
    """
    own = ends.get((stream, method), {})
    heads = {head: ends[stream, head] for head in plan["heads"] if (stream, head) in ends}
    shared = {head: own.keys() & known.keys() for head, known in heads.items()}
    orders = set(own).intersection(*shared.values()) or max(shared.values(), key=len, default=set())
    if not orders:
        return None
    able = [head for head, known in shared.items() if orders <= known]
    best = max(able, key=lambda head: statistics.fmean(heads[head][order].accuracy for order in orders))
    apart = over_orders_and_images(own, heads[best])
    if apart is None:
        return None
    return Gain(stream=stream, method=method, head=best, apart=apart)


def distances(plan: Mapping[str, Any], ends: Ends) -> dict[str, dict[str, float]]:
    """Return both distances of each stream."""
    blind = json.loads((HERE / "distance.json").read_text(encoding="utf-8"))
    return {
        stream: {
            "labelled": 100 - statistics.fmean(each.accuracy for each in ends[stream, "lda"].values()),
            "blind": blind[stream]["blind"],
        }
        for stream in plan["streams"]
    }


def gains_of(plan: Mapping[str, Any], ends: Ends) -> dict[tuple[str, str], Gain]:
    """Return the gain of every stream and method that has runs."""
    found = {}
    for stream, method in itertools.product(plan["streams"], plan["methods"]):
        own = gain(plan, ends, stream, method)
        if own is not None:
            found[stream, method] = own
    return found


# -- verdicts --------------------------------------------------------------------------------------------


def rank(plan: Mapping[str, Any], name: str, gains: Any, far: Any) -> Iterator[str]:
    """Yield the verdicts on a rank correlation, one a method."""
    for method in plan["methods"]:
        own = [stream for stream in plan["streams"] if (stream, method) in gains]
        if len(own) < len(plan["streams"]):
            yield f"({name}) {method}: open ({len(own)} of {len(plan['streams'])} streams)"
            continue
        x = [far[stream][plan[name]["distance"]] for stream in own]
        rho = float(stats.spearmanr(x, [gains[stream, method].apart.mean for stream in own]).statistic)
        verdict = "undecided"
        if rho > 1 - 1e-9:
            verdict = "holds"
        if rho <= 0:
            verdict = "refuted"
        yield f"({name}) {method}: {verdict} (Spearman {rho:+.1f} over {len(own)} streams)"


def margin(differences: Sequence[tuple[str, Gain]], least: float) -> str:
    """Return the verdict on differences none of which is to fall below a margin."""
    below = [(stream, each) for stream, each in differences if each.apart.mean < least]
    if not below:
        return "holds" if differences else "open"
    told = []
    for stream, each in below:
        beyond = each.apart.high is not None and each.apart.high < least
        told.append(f"{stream} ({'beyond' if beyond else 'within'} its interval)")
    return f"refuted on {', '.join(told)}"


def pairs(plan: Mapping[str, Any], ends: Ends) -> list[tuple[str, Gain]]:
    """Return the difference of two trained methods on each stream that has both."""
    left, right = plan["one"]["left"], plan["one"]["right"]
    found = []
    for stream in plan["streams"]:
        apart = over_orders_and_images(ends.get((stream, left), {}), ends.get((stream, right), {}))
        if apart is not None:
            found.append((stream, Gain(stream=stream, method=left, head=right, apart=apart)))
    return found


def family(plan: Mapping[str, Any], gains: Any) -> Iterator[str]:
    """Yield the verdicts of the one family, corrected by Holm."""
    method, level = plan["gains"]["method"], plan["gains"]["level"]
    tested = []
    for stream in plan["streams"]:
        own = gains.get((stream, method))
        if own is not None and own.apart.n > 1:
            tested.append(own)
        else:
            yield f"(gains) {stream}: open"
    corrected = holm([own.apart for own in tested])
    for own, apart in zip(tested, corrected, strict=True):
        verdict = "undecided"
        if apart.p < level:
            verdict = "gains" if apart.mean > 0 else "loses"
        yield f"(gains) {own.stream}: {verdict} ({own}, p {apart.p:.3f} by Holm)"


def verdicts(plan: Mapping[str, Any], ends: Ends) -> Iterator[str]:
    """Yield all verdicts; those on gains are open while a stream lacks heads."""
    gains, far = gains_of(plan, ends), distances(plan, ends)
    lacking = [
        stream for stream in plan["streams"] if any((stream, head) not in ends for head in plan["heads"])
    ]
    if lacking:
        missing = ", ".join(lacking)
        yield f"(near), (blind), (floor), (gains) are open: heads to run on {missing}. On what there is:"
    for name in ("near", "blind"):
        yield from rank(plan, name, gains, far)
    method = plan["floor"]["method"]
    own = [(stream, gains[stream, method]) for stream in plan["streams"] if (stream, method) in gains]
    yield f"(floor) {margin(own, plan['floor']['margin'])}"
    both = pairs(plan, ends)
    told = "; ".join(f"{stream} {each}" for stream, each in both)
    # a margin over all streams is open while one of them has no pair, or a single order
    compared = [stream for stream, each in both if each.apart.n > 1]
    verdict = margin(both, plan["one"]["margin"])
    if len(compared) < len(plan["streams"]) and not verdict.startswith("refuted"):
        verdict = f"open ({len(compared)} of {len(plan['streams'])} streams have both on more than one order)"
    yield f"(one) {verdict}: {told or 'no stream has both'}"
    yield from family(plan, gains)


# -- page ------------------------------------------------------------------------------------------------


def lines(plan: Mapping[str, Any], ends: Ends) -> Iterator[str]:
    """Yield the table of gains and the verdicts in Markdown."""
    gains, far = gains_of(plan, ends), distances(plan, ends)
    streams = sorted(plan["streams"], key=lambda stream: far[stream]["labelled"])
    yield f"| | {' | '.join(streams)} |"
    yield f"| --- |{' ---: |' * len(streams)}"
    for name, label in (("labelled", "distance by accuracy"), ("blind", "distance without labels")):
        yield f"| {label} | {' | '.join(f'{far[stream][name]:.1f}' for stream in streams)} |"
    for method in plan["methods"]:
        cells = [str(gains.get((stream, method), "-")) for stream in streams]
        yield f"| {method} | {' | '.join(cells)} |"
    best = []
    for stream in streams:
        heads = sorted({own.head for (at, _), own in gains.items() if at == stream})
        run = sum((stream, head) in ends for head in plan["heads"])
        best.append(f"{', '.join(heads) or '-'} (of {run} run)")
    yield f"| best frozen head | {' | '.join(best)} |"
    yield ""
    yield from (f"- {line}" for line in verdicts(plan, ends))


COLOURS = ("#2f6fb5", "#c2502f", "#3d8b53", "#8a5fb0", "#a8801f")
INK = "#808080"
TITLES = {
    "labelled": "100 less accuracy of frozen lda",
    "blind": "100 less confidence of the backbone's own head",
}
TOP, BOTTOM, WIDTH = 20, 300, 320


@attrs.frozen(kw_only=True)
class Panel:
    """The place of one distance in the picture.

    Attributes:
        left: Its left edge, in pixels.
        far: The distance of each stream.
        low: The least gain that is drawn.
        high: The greatest one.
    """

    left: int
    far: Mapping[str, float]
    low: float
    high: float

    def x(self, stream: str) -> float:
        """Return where a stream stands."""
        first, last = min(self.far.values()) - 2, max(self.far.values()) + 2
        return self.left + WIDTH * (self.far[stream] - first) / (last - first)

    def y(self, value: float) -> float:
        """Return where a gain stands; one beyond the edge stands on it."""
        within = min(max(value, self.low), self.high)
        return BOTTOM - (BOTTOM - TOP) * (within - self.low) / (self.high - self.low)

    def axes(self, title: str) -> Iterator[str]:
        """Yield the lines at gains and the names of streams."""
        first = 5 * (int(self.low) // 5 + 1)
        for value in range(first, int(self.high) + 1, 5):
            at, width = self.y(value), 1.5 if value == 0 else 0.4
            ends = f'x1="{self.left}" x2="{self.left + WIDTH}" y1="{at:.1f}" y2="{at:.1f}"'
            yield f'<line {ends} stroke="{INK}" stroke-width="{width}"/>'
            yield f'<text x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">{value:+d}</text>'
        for number, stream in enumerate(sorted(self.far, key=lambda each: self.far[each])):
            # names of neighbours stand below one another
            # the last name ends at the edge, which a reader's wider letters would leave otherwise
            at = min(self.x(stream), self.left + WIDTH - 3.2 * len(stream))
            place = f'x="{at:.1f}" y="{BOTTOM + 14 + 12 * (number % 2)}"'
            yield f'<text {place} text-anchor="middle" font-size="10">{html.escape(stream)}</text>'
        yield f'<text x="{self.left + WIDTH / 2:.0f}" y="{BOTTOM + 46}" text-anchor="middle">{title}</text>'

    def point(self, own: Gain, number: int) -> Iterator[str]:
        """Yield a gain and its interval in the colour of its method; methods stand side by side."""
        at, colour = self.x(own.stream) + 5 * (number - 2), COLOURS[number]
        if own.apart.low is not None and own.apart.high is not None:
            low, high = self.y(own.apart.low), self.y(own.apart.high)
            yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        said = html.escape(f"{own.method} on {own.stream}: {own}, best frozen head {own.head}")
        yield f'<circle cx="{at:.1f}" cy="{self.y(own.apart.mean):.1f}" r="4" fill="{colour}">'
        yield f"<title>{said}</title></circle>"


def drawn(plan: Mapping[str, Any], ends: Ends) -> str:
    """Return the picture as SVG: gain against distance, a panel for each of the two distances."""
    gains, far = gains_of(plan, ends), distances(plan, ends)
    means = [own.apart.mean for own in gains.values()]
    methods = list(plan["methods"])
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 390" font-family="sans-serif" '
        f'font-size="11" fill="{INK}">'
    ]
    for number, (name, title) in enumerate(TITLES.items()):
        panel = Panel(
            left=50 + 380 * number,
            far={stream: far[stream][name] for stream in plan["streams"]},
            low=min([-5.0, *means]) - 1,
            high=max([5.0, *means]) + 1,
        )
        parts += panel.axes(title)
        for (_, method), own in gains.items():
            parts += panel.point(own, methods.index(method))
    for number, method in enumerate(methods):
        left = 50 + 130 * number
        parts.append(f'<circle cx="{left}" cy="372" r="4" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{left + 8}" y="376">{html.escape(method)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def page_with(text: str, table: Sequence[str]) -> str:
    """Return the page with these lines between its marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *table, "", END]) + tail


def written(stored: Stored, text: str) -> dict[str, str]:
    """Return the page and the picture as the packs would have them.

    Args:
        stored: The packs.
        text: The page as it is.
    """
    plan = tomllib.loads((HERE / "hypotheses.toml").read_text(encoding="utf-8"))
    ends = ends_of(plan, runs_of(STORE, stored))
    return {PAGE: page_with(text, list(lines(plan, ends))), PICTURE: drawn(plan, ends)}


def told(stored: Stored) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return methods by short names, and what fields of sentences say of gains over the best frozen head.

    A field ``{METHOD/STREAM/gain}`` is the gain, ``{METHOD/STREAM/gain-interval}`` with its interval;
    ``{METHOD/report/gains}`` and ``loses`` name the streams with that verdict of the family, and
    ``{METHOD/report/near}`` is the verdict on the rank correlation.
    """
    plan = tomllib.loads((HERE / "hypotheses.toml").read_text(encoding="utf-8"))
    fields = {}
    ends = ends_of(plan, runs_of(STORE, stored))
    for (stream, method), own in gains_of(plan, ends).items():
        fields[f"{{{method}/{stream}/gain}}"] = f"{own.apart.mean:+z.1f}"
        fields[f"{{{method}/{stream}/gain-interval}}"] = with_interval(own.apart)
    judged = list(verdicts(plan, ends))
    method = plan["gains"]["method"]
    for verdict in ("gains", "loses"):
        on = [line.split()[1].rstrip(":") for line in judged if f": {verdict} (" in line]
        fields[f"{{{method}/report/{verdict}}}"] = ", ".join(f"`{stream}`" for stream in on) or "none"
    for line in judged:
        if line.startswith("(near) "):
            near, verdict = line.removeprefix("(near) ").split(": ")
            fields[f"{{{near}/report/near}}"] = verdict.partition(" (")[0]
    return {**plan["heads"], **plan["methods"]}, fields


def main() -> None:
    """Write page and picture, or print what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    stored = stored_runs(STORE, load_catalogue())
    if arguments.print:
        plan = tomllib.loads((HERE / "hypotheses.toml").read_text(encoding="utf-8"))
        print("\n".join(lines(plan, ends_of(plan, runs_of(STORE, stored)))))
        return
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name, content in written(stored, text).items():
        (ROOT / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
