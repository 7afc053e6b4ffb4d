"""Print the verdicts on all of CIFAR-100, by the hypotheses of this folder's README.

python experiments/frozen/frozen_whole.py
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import attrs
from frozen_claims import (
    OPEN,
    Claim,
    Criterion,
    Streams,
    above,
    below,
    less,
    on_each,
    while_missing,
    with_orders,
)
from frozen_results import Difference, Trained, between, store, streams, trained

WHOLE = "cifar-whole"
ORDERS = 3
"""The orders that a verdict asks for."""
CLOSE = 1.0
"""Points within which two ways of training on the first task are taken to end."""
OF_THE_HALF = 2.2
"""What training on the first task adds on the second half with 50 images a class (`cifar-second`)."""


@attrs.frozen(kw_only=True)
class Expected:
    """What was expected of one difference.

    Attributes:
        key: Its name in the README.
        text: What it claims.
        left: A trained row.
        right: A head of the cells, or another trained row.
        holds: Whether a difference is as expected.
    """

    key: str
    text: str
    left: str
    right: str
    holds: Criterion


CLAIMS = (
    Expected(
        key="w-i",
        text="Training on the first task is above the frozen answer, with its interval.",
        left="stopped-1",
        right="auto",
        holds=above,
    ),
    Expected(
        key="w-ii",
        text="It is above training on every task, with its interval.",
        left="stopped-1",
        right="recommended",
        holds=above,
    ),
    Expected(
        key="w-iii",
        text=f"It ends within {CLOSE:.0f} point of adapting on that task (`ranpac-joined`), by the mean.",
        left="stopped-1",
        right="ranpac-joined",
        holds=lambda own: abs(own.mean) <= CLOSE,
    ),
    Expected(
        key="w-iv, lda",
        text="Training on every task is above `lda` on the last class token, with its interval,",
        left="recommended",
        right="lda",
        holds=above,
    ),
    Expected(
        key="w-iv, frozen",
        text="and below the frozen answer, with its interval.",
        left="recommended",
        right="auto",
        holds=below,
    ),
    Expected(
        key="w-v",
        text="Twelve layers add to adapters of the first task: `ranpac-joined` (`ridge` on them) is above "
        "`ranpac-adapted` (random units of the last class token), with its interval.",
        left="ranpac-joined",
        right="ranpac-adapted",
        holds=above,
    ),
    Expected(
        key="w-vi",
        text="With 500 images a class training on the first task adds no less than with 50 on `cifar-second` "
        f"(+{OF_THE_HALF}), by the mean.",
        left="stopped-1",
        right="auto",
        holds=lambda own: own.mean >= OF_THE_HALF,
    ),
)


ROWS = {
    "stopped-1": "trained on the first task, then `auto`",
    "recommended": "trained on every task",
    "ranpac-joined": "adapters of the first task, ridge on 12 layers",
    "ranpac-adapted": "adapters of the first task, ridge on random units",
}
"""The rows of training that the claims name, with what stands before them."""


def table(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the rows as a table in Markdown: right answers, what each has more than `auto`, and forwards."""
    if WHOLE not in known:
        return
    stream = known[WHOLE]
    yield "| | right answers | minus `auto` | forwards |"
    yield "| --- | ---: | ---: | ---: |"
    yield f"| `lda` | {stream.accuracy('lda'):.1f} | {between(stream, 'lda', 'auto')} | 1 |"
    yield f"| `auto` | {stream.accuracy('auto'):.1f} | - | 1 |"
    for method, shown in ROWS.items():
        apart_from = less(known, runs, WHOLE, method, "auto")
        if apart_from is None:
            continue
        own = runs[WHOLE, method].values()
        right = 100 * statistics.fmean(run.hits(stream.cell(run.told.order)).mean() for run in own)
        spent = statistics.fmean(run.told.forwards for run in own)
        yield f"| {shown} | {right:.1f} | {apart_from}, n={apart_from.orders} | {spent:.1f} |"
    yield ""


def lines(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield each claim with its verdict and the difference that it rests on."""
    for claim in CLAIMS:
        own = less(known, runs, WHOLE, claim.left, claim.right)
        found = {} if own is None else {WHOLE: own}
        judged = Claim(key=claim.key, text=claim.text, verdict=verdict(claim, own), found=found)
        yield judged.line(told=with_orders(found).removeprefix(f"{WHOLE}: "))


def verdict(claim: Expected, own: Difference | None) -> str:
    """Return whether a claim holds; open while orders are missing."""
    if own is None:
        return OPEN
    found = on_each({WHOLE: own}, claim.holds).removesuffix(f" on {WHOLE}")
    return while_missing(found, min(own.orders, ORDERS), ORDERS, "orders")


def main() -> None:
    """Print the verdicts."""
    print("\n".join(lines(streams(), trained(store()))))


if __name__ == "__main__":
    main()
