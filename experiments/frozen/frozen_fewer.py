"""Print rows and verdicts on fewer images of the same classes, by the hypotheses of this folder's README.

python experiments/frozen/frozen_fewer.py
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import attrs
from frozen_claims import (
    HOLDS,
    Claim,
    Criterion,
    Found,
    Streams,
    above,
    below,
    less,
    on_each,
    while_missing,
    with_orders,
)
from frozen_gains import FACTS, few
from frozen_results import Trained, store, streams, trained
from frozen_whole import ORDERS, WHOLE
from stream_tables import side_of_zero

FROZEN = "frozen-answer"
"""The row that all others are compared with: a run of its own on each number of images."""
ADDED = {"stopped-1": "training on the first task", "recommended": "training on every task"}
"""The trained rows, with what stands above them."""


def streams_by_images() -> dict[str, int]:
    """Return the streams that have the classes of all of CIFAR-100, by their training images a class."""
    own = [name for name, facts in FACTS.items() if WHOLE in (name, facts.get("orders_of"))]
    images = {name: int(FACTS[name]["train_per_class"]) for name in own}
    return dict(sorted(images.items(), key=lambda item: item[1]))


FEW, MANY = "whole-twenty", "whole-two-hundred"
SOME = ("whole-hundred", MANY)


@attrs.frozen(kw_only=True)
class Expected:
    """What was expected of a difference on some numbers of images.

    Attributes:
        key: Its name in the README.
        text: What it claims.
        names: The streams that it speaks of.
        left: A trained row.
        right: What is taken away from it.
        holds: Whether a difference is as expected.
    """

    key: str
    text: str
    names: tuple[str, ...]
    left: str
    right: str
    holds: Criterion


CLAIMS = (
    Expected(
        key="n-ii",
        text="With 20 images a class training on the first task is not below the frozen answer with its "
        "interval.",
        names=(FEW,),
        left="stopped-1",
        right=FROZEN,
        holds=lambda own: not below(own),
    ),
    Expected(
        key="n-iii",
        text="With 100 and with 200 it is above the frozen answer with its interval.",
        names=SOME,
        left="stopped-1",
        right=FROZEN,
        holds=above,
    ),
    Expected(
        key="n-iv",
        text="With 100 and with 200 training on every task is below it with its interval.",
        names=SOME,
        left="recommended",
        right="stopped-1",
        holds=below,
    ),
)


def differences(known: Streams, runs: Trained, left: str, right: str) -> Found:
    """Return a trained row less another row on each stream that has both, from few to many images."""
    # the streams differ in training images alone: their test images are those of the whole
    alike = {name: known[WHOLE] for name in streams_by_images() if WHOLE in known}
    every = {name: less(alike, runs, name, left, right) for name in alike}
    return {name: own for name, own in every.items() if own is not None}


def table(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield right answers of frozen heads, and what training adds, a line a number of images."""
    added = {method: differences(known, runs, method, FROZEN) for method in ADDED}
    heads = " | ".join(f"{shown} adds" for shown in ADDED.values())
    yield f"| images a class | `lda` | frozen answer | {heads} |"
    yield f"| ---: | ---: | ---: |{' ---: |' * len(ADDED)}"
    for name, images in streams_by_images().items():
        right = [_right(known, runs, name, method) for method in ("lda", FROZEN)]
        cells = [f"{own[name]}, n={own[name].orders}" if name in own else "-" for own in added.values()]
        yield f"| {images} | {' | '.join([*right, *cells])} |"


def words(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield in sentences where training adds, and where as many images a class of fewer classes end."""
    for method, shown in ADDED.items():
        found = differences(known, runs, method, FROZEN)
        gains, costs = (_images(found, side) for side in (1, -1))
        yield (
            f"{shown[:1].upper()}{shown[1:]} ends above the frozen answer, with its interval, with {gains} "
            f"images a class, and below it with {costs}."
        )
    images = FACTS[FEW]["train_per_class"]
    own = few(runs, "recommended").get(("cifar", images))
    every = differences(known, runs, "recommended", FROZEN)
    if own is not None and FEW in every:
        yield (
            f"Images a class do not decide alone: with {images} of them training on every task adds "
            f"{every[FEW].mean:+.1f} points on these hundred classes, and {own} on twenty of them in four "
            "tasks (`few-cifar-twenty`, below)."
        )


def _images(found: Found, side: int) -> str:
    """Return the numbers of images whose interval, as pages print it, is on a side of 0."""
    numbers = []
    for name, images in streams_by_images().items():
        if name in found and side_of_zero(found[name].low, found[name].high) == side:
            numbers.append(str(images))
    return ", ".join(numbers) or "none"


def _right(known: Streams, runs: Trained, name: str, method: str) -> str:
    """Return the right answers of a row in per cent, the mean over its orders; a dash without a run."""
    own = runs.get((name, method), {})
    if not own or WHOLE not in known:
        return "-"
    shares = [run.hits(known[WHOLE].cell(order)).mean() for order, run in own.items()]
    return f"{100 * statistics.fmean(shares):.1f}"


def lines(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield each claim with its verdict and the differences that it rests on."""
    adds = differences(known, runs, "stopped-1", FROZEN)
    ends = {name: adds[name] for name in (FEW, MANY) if name in adds}
    grows = len(ends) == 2 and ends[MANY].mean > ends[FEW].mean
    text = (
        "What training on the first task adds is greater with 200 images a class than with 20, by the mean."
    )
    yield _line("n-i", text, HOLDS if grows else "refuted", ends, (FEW, MANY))
    for claim in CLAIMS:
        every = differences(known, runs, claim.left, claim.right)
        found = {name: every[name] for name in claim.names if name in every}
        yield _line(claim.key, claim.text, on_each(found, claim.holds), found, claim.names)


def _line(key: str, text: str, verdict: str, found: Found, names: tuple[str, ...]) -> str:
    """Return a claim as a point of a list; open while an order of a stream is missing."""
    orders = sum(min(own.orders, ORDERS) for own in found.values())
    judged = while_missing(verdict, orders, ORDERS * len(names), "orders")
    return Claim(key=key, text=text, verdict=judged, found=found).line(told=with_orders(found))


def main() -> None:
    """Print table and verdicts."""
    known, runs = streams(), trained(store())
    print("\n".join([*table(known, runs), "", *lines(known, runs)]))


if __name__ == "__main__":
    main()
