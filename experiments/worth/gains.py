"""What training gains over the best frozen head, from packs: table, verdicts and picture.

    python experiments/worth/gains.py            # write docs/worth.md between its marks, and docs/worth.svg
    python experiments/worth/gains.py --print    # print the table and the verdicts

Criteria and distances stand in ``hypotheses.toml``, written before the rows; nothing is judged by hand.
"""

from __future__ import annotations

import argparse
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

from interval_plot import Panel, Point, picture  # noqa: E402
from sentences import at_least  # noqa: E402
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
        return f"{with_interval(self.apart)}, n={self.apart.n}"


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


def rank(plan: Mapping[str, Any], name: str, method: str, gains: Any, far: Any) -> str:
    """Return the verdict on the rank correlation of a method's gain with a distance."""
    own = [stream for stream in plan["streams"] if (stream, method) in gains]
    if len(own) < len(plan["streams"]):
        return f"open ({len(own)} of {len(plan['streams'])} streams)"
    x = [far[stream][plan[name]["distance"]] for stream in own]
    rho = float(stats.spearmanr(x, [gains[stream, method].apart.mean for stream in own]).statistic)
    word = "refuted" if rho < 1e-9 else "undecided"
    # of four streams only a perfect order has a chance below 5 %
    if rho > 1 - 1e-9:
        word = "holds"
    return f"{word} ({rho:+.1f})"


def margin(differences: Sequence[tuple[str, Gain]], least: float) -> str:
    """Return the verdict on differences none of which is to fall below a margin; open without any."""
    found = {stream: each.apart for stream, each in differences}
    if not found:
        return "open"
    verdict = at_least(found, least)
    lows = {stream: apart.mean if apart.low is None else apart.low for stream, apart in found.items()}
    met = [stream for stream, low in lows.items() if low >= least]
    # beside streams that miss it, a stream that is not named would leave open what it says
    return f"{verdict}; met on {', '.join(met)}" if met and verdict.startswith("refuted") else verdict


def pairs(plan: Mapping[str, Any], ends: Ends) -> list[tuple[str, Gain]]:
    """Return the difference of two trained methods on each stream that has both."""
    left, right = plan["one"]["left"], plan["one"]["right"]
    found = []
    for stream in plan["streams"]:
        apart = over_orders_and_images(ends.get((stream, left), {}), ends.get((stream, right), {}))
        if apart is not None:
            found.append((stream, Gain(stream=stream, method=left, head=right, apart=apart)))
    return found


def family(plan: Mapping[str, Any], gains: Any) -> dict[str, str]:
    """Return the verdict on each stream of the one family that is corrected, by Holm."""
    tested = {own.stream: own.apart for own in _tested(plan, gains)}
    return _judged(plan, tested)


def foreseen(plan: Mapping[str, Any], ends: Ends, gains: Any) -> dict[str, str]:
    """Return the verdicts by the test that was foreseen: paired t-tests over orders, corrected by Holm."""
    tested = {}
    for own in _tested(plan, gains):
        trained, frozen = ends[own.stream, own.method], ends[own.stream, own.head]
        apart = [trained[order].accuracy - frozen[order].accuracy for order in trained.keys() & frozen.keys()]
        p = float(stats.ttest_1samp(apart, 0.0).pvalue)
        tested[own.stream] = Difference(mean=statistics.fmean(apart), n=len(apart), p=p)
    return _judged(plan, tested)


def _tested(plan: Mapping[str, Any], gains: Any) -> list[Gain]:
    """Return the gains of the method whose gains are tested, on more than one order."""
    method = plan["gains"]["method"]
    return [own for stream in plan["streams"] if (own := gains.get((stream, method))) and own.apart.n > 1]


def _judged(plan: Mapping[str, Any], tested: Mapping[str, Difference]) -> dict[str, str]:
    """Return the verdict on each stream, by differences with p values."""
    level = plan["gains"]["level"]
    found = dict.fromkeys(plan["streams"], "open")
    for stream, apart in zip(tested, holm([*tested.values()]), strict=True):
        verdict = "undecided"
        if apart.p < level:
            verdict = "gains" if apart.mean > 0 else "loses"
        found[stream] = f"{verdict} (p {apart.p:.3f})"
    return found


def margins(plan: Mapping[str, Any], ends: Ends, gains: Any) -> Iterator[str]:
    """Yield the verdicts on differences none of which is to fall below a margin."""
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


# -- page ------------------------------------------------------------------------------------------------


CALLED = {
    "recommended": "training on every task",
    "slca-plus-plus": "the same without gate and expert",
    "lora": "one LoRA",
    "one-set": "one prompt set",
    "sets": "a prompt set a task",
}
"""What the page calls the methods of the plan."""


def lines(plan: Mapping[str, Any], ends: Ends) -> Iterator[str]:
    """Yield the table of gains and the verdicts in Markdown.

    Raises:
        SystemExit: A stream lacks a head, so that none is the best.
    """
    for stream, head in itertools.product(plan["streams"], plan["heads"]):
        if (stream, head) not in ends:
            raise SystemExit(f"no pack of {head} on {stream}; run it, for the best head is sought among all")
    gains, far = gains_of(plan, ends), distances(plan, ends)
    streams = sorted(plan["streams"], key=lambda stream: far[stream]["labelled"])
    yield f"| | {' | '.join(streams)} | (near) | (blind) |"
    yield f"| --- |{' ---: |' * len(streams)} --- | --- |"
    for name, label in (("labelled", "distance by accuracy"), ("blind", "distance without labels")):
        yield f"| {label} | {' | '.join(f'{far[stream][name]:.1f}' for stream in streams)} | | |"
    heads = {each: {own.head for (at, _), own in gains.items() if at == each} for each in streams}
    yield f"| best frozen head | {' | '.join(', '.join(sorted(heads[each])) for each in streams)} | | |"
    judged = family(plan, gains)
    for method in plan["methods"]:
        cells = [str(gains.get((stream, method), "-")) for stream in streams]
        ranks = [rank(plan, name, method, gains, far) for name in ("near", "blind")]
        yield f"| {CALLED[method]} | {' | '.join([*cells, *ranks])} |"
        if method == plan["gains"]["method"]:
            yield f"| (gains) | {' | '.join(judged[stream] for stream in streams)} | | |"
    yield ""
    by_orders = foreseen(plan, ends, gains)
    other = [
        f"{stream} {by_orders[stream]}"
        for stream in streams
        if by_orders[stream].split()[0] != judged[stream].split()[0]
    ]
    yield f"- (gains) by the foreseen t-tests over orders: {'; '.join(other) or 'the same verdicts'}"
    yield from (f"- {line}" for line in margins(plan, ends, gains))


def drawn(plan: Mapping[str, Any], ends: Ends) -> str:
    """Return the picture as SVG: the gains on each stream, from near to far by what frozen `lda` gets."""
    far = distances(plan, ends)
    streams = sorted(plan["streams"], key=lambda stream: far[stream]["labelled"])
    rows: dict[str, dict[str, Point]] = {stream: {} for stream in streams}
    for (stream, method), own in gains_of(plan, ends).items():
        mean, low, high = own.apart.mean, own.apart.low, own.apart.high
        rows[stream][CALLED[method]] = Point(
            mean, mean if low is None else low, mean if high is None else high
        )
    panel = Panel("points above the best frozen head", rows)
    return picture(
        [CALLED[method] for method in plan["methods"]],
        [panel],
        "What training gains over the best frozen head, by stream",
    )


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

    A field ``{METHOD/STREAM/gain}`` is the gain, ``{METHOD/STREAM/gain-interval}`` with its interval, and
    ``{METHOD/STREAM/best-head}`` the head that it is over;
    ``{METHOD/report/gains}`` and ``loses`` name the streams with that verdict of the family, and
    ``{METHOD/report/near}`` is the verdict on the rank correlation, all of the method of the family;
    ``{METHOD/report/floor}`` is what is not met of *(floor)*, and ``{judged/report/blind}`` in how many
    of the rows that are judged *(blind)* is refuted.
    """
    plan = tomllib.loads((HERE / "hypotheses.toml").read_text(encoding="utf-8"))
    fields = {}
    ends = ends_of(plan, runs_of(STORE, stored))
    gains, far = gains_of(plan, ends), distances(plan, ends)
    for (stream, method), own in gains.items():
        fields[f"{{{method}/{stream}/gain}}"] = f"{own.apart.mean:+z.1f}"
        fields[f"{{{method}/{stream}/gain-interval}}"] = with_interval(own.apart)
        fields[f"{{{method}/{stream}/best-head}}"] = f"`{own.head}`"
    method = plan["gains"]["method"]
    judged = family(plan, gains)
    for verdict in ("gains", "loses"):
        on = [f"`{stream}`" for stream, own in judged.items() if own.startswith(verdict)]
        fields[f"{{{method}/report/{verdict}}}"] = ", ".join(on) or "none"
    near = rank(plan, "near", method, gains, far)
    fields[f"{{{method}/report/near}}"] = near.partition(" (")[0]
    blind = [rank(plan, "blind", each, gains, far) for each in plan["methods"]]
    judged_rows = [one for one in blind if not one.startswith("open")]
    refuted = sum(one.startswith("refuted") for one in judged_rows)
    fields["{judged/report/blind}"] = f"{refuted} of {len(judged_rows)}"
    floor = next(margins(plan, ends, gains)).removeprefix("(floor) ")
    fields[f"{{{plan['floor']['method']}/report/floor}}"] = floor.partition(";")[0]
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
