"""Print rows and verdicts on fewer images of the same classes, by the hypotheses of this folder's README.

python experiments/frozen/frozen_fewer.py
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import attrs
from frozen_claims import (
    HOLDS,
    REFUTED,
    Claim,
    Criterion,
    Found,
    Streams,
    above,
    below,
    on_each,
    while_missing,
    with_orders,
)
from frozen_gains import FACTS, FROZEN_ANSWER, few
from frozen_results import Trained, apart, hits_by_order, store, streams, trained
from frozen_whole import ORDERS, WHOLE
from stream_tables import side_of_zero

ADDED = {"stopped-1": "training on the first task", "recommended": "training on every task"}
"""The trained rows, with what stands above them."""


def images_by_stream() -> dict[str, int]:
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
        right=FROZEN_ANSWER,
        holds=lambda own: not below(own),
    ),
    Expected(
        key="n-iii",
        text="With 100 and with 200 it is above the frozen answer with its interval.",
        names=SOME,
        left="stopped-1",
        right=FROZEN_ANSWER,
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
    if WHOLE not in known:
        return {}
    # the streams differ in training images alone: their test images are those of the whole
    stream = known[WHOLE]
    found = {}
    for name in images_by_stream():
        own, other = (runs.get((name, row), {}) for row in (left, right))
        if right == "lda" and other:
            # it sees no order of the classes, and has one run
            other = dict.fromkeys(own, next(iter(other.values())))
        difference = apart(stream, hits_by_order(stream, own), hits_by_order(stream, other))
        if difference is not None:
            found[name] = difference
    return found


def table(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield right answers of frozen heads, and what training adds, a line a number of images."""
    columns = [differences(known, runs, method, FROZEN_ANSWER) for method in ADDED]
    columns.append(differences(known, runs, "recommended", "lda"))
    heads = " | ".join(f"{shown} minus `--recommended`" for shown in ADDED.values())
    yield f"| images a class | `lda` | `--recommended` | {heads} | the latter minus `lda` |"
    yield f"| ---: | ---: | ---: |{' ---: |' * len(columns)}"
    for name, images in images_by_stream().items():
        right = [_right(known, runs, name, method) for method in ("lda", FROZEN_ANSWER)]
        cells = [f"{own[name]}, n={own[name].orders}" if name in own else "-" for own in columns]
        yield f"| {images} | {' | '.join([*right, *cells])} |"


def words(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield in sentences where training on every task adds, and what of that is the head."""
    yield "Training on every task answers by `lda`, `--recommended` by the head that its images choose."
    images, more = (FACTS[name]["train_per_class"] for name in (FEW, MANY))
    few_over_run = few(runs, "recommended", FROZEN_ANSWER).get(("cifar", images))
    all_over_run = differences(known, runs, "recommended", FROZEN_ANSWER).get(FEW)
    if few_over_run and all_over_run:
        yield (
            f"With {images} images a class it has {all_over_run.mean:+.1f} points over `--recommended` on "
            f"these hundred classes, {few_over_run.mean:+.1f} on twenty of them (`few-cifar-twenty`, below). "
            "The twenty are exploratory: one draw, other test images."
        )
    grows, *others = judged(known, runs)
    held = sum(claim.verdict == HOLDS for claim in (grows, *others))
    yield (
        f"Of the {1 + len(others)} [claims on fewer images](frozen_tables.md#all-of-cifar-100), written "
        f"before, {held} held; that training on the first task adds more with {more} "
        f"than with {images}: {grows.verdict}, by means."
    )


def images_on(found: Found, side: int) -> str:
    """Return the numbers of images whose interval, as pages print it, is on a side of 0."""
    numbers = []
    for name, images in images_by_stream().items():
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
    for claim in judged(known, runs):
        yield claim.line(told=with_orders(claim.found))


def judged(known: Streams, runs: Trained) -> Iterator[Claim]:
    """Yield each claim with its verdict: that what training adds grows with the images, and the others."""
    adds = differences(known, runs, "stopped-1", FROZEN_ANSWER)
    ends = {name: adds[name] for name in (FEW, MANY) if name in adds}
    grows = len(ends) == 2 and ends[MANY].mean > ends[FEW].mean
    text = "What training on the first task adds is greater with 200 images a class than with 20, by mean."
    yield _claim("n-i", text, HOLDS if grows else REFUTED, ends, (FEW, MANY))
    for claim in CLAIMS:
        every = differences(known, runs, claim.left, claim.right)
        found = {name: every[name] for name in claim.names if name in every}
        yield _claim(claim.key, claim.text, on_each(found, claim.holds), found, claim.names)


def _claim(key: str, text: str, verdict: str, found: Found, names: tuple[str, ...]) -> Claim:
    """Return a claim; open while an order of a stream is missing."""
    orders = sum(min(own.orders, ORDERS) for own in found.values())
    told = while_missing(verdict, orders, ORDERS * len(names), "orders")
    return Claim(key=key, text=text, verdict=told, found=found)


def main() -> None:
    """Print table and verdicts."""
    known, runs = streams(), trained(store())
    print("\n".join([*table(known, runs), "", *lines(known, runs)]))


if __name__ == "__main__":
    main()
