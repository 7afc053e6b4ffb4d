"""Write the page of the leaderboard from a store of results.

    python scripts/write_leaderboard.py docs/leaderboard.md     # from experiments/store

``scripts/tables.py`` writes this page and the tables of others.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sentences import WIDTH, sentence, unsure
from stream_plot import picture
from stream_tables import (
    FLOOR,
    LABELS,
    Line,
    StreamRun,
    lines_of,
    markdown,
    matrix,
    runs_of,
    shared,
    side_of_zero,
)

from lw2g.registry.catalogue import load_catalogue
from lw2g.results.summaries import Difference
from lw2g_store.stored import Stored, stored_runs

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
sys.path.append(str(EXPERIMENTS / "frozen"))

from frozen_images import by_shrinkage  # noqa: E402
from frozen_results import trained as frozen_runs  # noqa: E402
from machines import ROWS as ON_BOTH_MACHINES  # noqa: E402
from machines import most as most_apart  # noqa: E402

STORE = EXPERIMENTS / "store"
HEAD = """\
# Leaderboard

{short}

The streams are of real images (`experiments/streams.toml`), under [the same conditions](use.md#conditions),
with presets. Trained rows mix [CPU and H200](frozen_tables.md#trained-rows-their-seeds-and-the-machine)
(same seed: up to {apart} points apart).
*Floor*: a head on frozen features, fixed beforehand, which a training has to beat.
A row's options stand in its pack; [lay out the data](use.md#conditions) to run it,
[submit](howto/store.md) yours.
[All words and columns](#words-of-the-tables).

![points above the floor of each method, by stream](leaderboard.svg)

*Means without intervals, over `lda` ([untuned](#words-of-the-tables)); right: forwards a training image.*
"""
OF_STREAMS = """\
## {size} px: report streams

{caution}
"""
CAUTION = """\
[Choices have seen these streams](#what-choices-have-seen). Chiefly `slca-plus-plus`, which trains in
`--trained` and in *training on every task*, and the carried `lda` were chosen on all of CIFAR-100. Rows of
fewer orders than most of their stream stand last, except `lda`: compare their difference from `lda` alone,
not FAA."""
SMALL = """\
[Choices have seen these streams](#what-choices-have-seen), too. The second row is minus
the first: of {sided} intervals that exclude zero, t intervals over orders alone contain it on {unsure}.
Training on every task at 64 px: `experiments/carries/README.md`, row *gate with expert*."""
"""What is said of report streams at another size, below the table at the first."""
WORDS = "### Words of the tables"
LEGEND = """
- FAA: right answers in % of each task, mean over tasks and over orders of the classes; *alike*: the same
  final answers in each order; their FAA differ where tasks are of unequal size.
  Order K has seed K; one order shows no spread of seeds.
- Minus frozen `lda`: over the orders that both have, with a 95 % interval over orders
  and test images ([paired bootstrap](howto/store.md#pairing-images)), uncorrected and too narrow;
  where `lda` depends on no order, one run of it stands for all. The shrinkage of `lda` [is not
  tuned](frozen_tables.md#how-an-image-becomes-a-square): {lda/development/shrinkage} changes it by
  {lda/development/by-shrinkage} points on development streams. The rows are sorted by this column;
  differences between them are not tested. Of
  {legend/rows/several}
  intervals over several orders {legend/rows/few} exclude zero. The t intervals of these, over orders alone,
  contain zero for {legend/rows/other}; {legend/rows/flat} have no t interval: their FAA is the same in each
  order.
- Budgets for tuning differ, and the grids of presets were not recorded (`experiments/tuning.md`).
- Forwards: operations on a training image, mean over tasks, in bare forwards; an answer of *training on
  every task* takes two.
- Numbers kept beside the backbone: parameters, and what is carried from task to task: statistics, or under
  `head=auto` the features of all training images (`cifar-whole`: sums).
- (floor): [which heads](heads.md), [when training beats them](worth.md); (control): for comparison.
- `--recommended` (a run of the frozen answer), `--trained`, *training on every task*: [what they
  are](use.md#training). *Carried*: by `affine` ([carries](carries.md)).
  *Adapters*: of the first task; the last task's images choose the
  penalty, except under `penalty=running`, which *12 layers* has, too. `ranpac adapt=none`, `ridge`
  (penalty by held-out images of all tasks): 2,000 random units. *Three asked*: the answers of the three
  likeliest sets together. *As published*: head and retrieval; backbone, epochs and rates are ours.
- [The frozen answer's tables](frozen_tables.md) count all test images alike and choose its head once; these
  are runs, which choose after each task. Means over tasks and over images differ by up to
  {legend/rows/apart} points.
"""
SEEN = """\
### What choices have seen

In brackets: classes, tasks, training + test images of a class. Of PACS
each object in each domain is a class.
"""
GROUND = """\
Rests on: packs in `experiments/store`, at 224 px `runs/folder/like-for-like/STREAM.ORDER.224@*/METHOD/`.
`python scripts/tables.py --packs leaderboard` names those behind each number, in minutes,
`--print docs/leaderboard.md` prints all, and `lw2g verify PACK` recomputes one from answers.
"""
ROLES = ("report", "development")
IN_FULL = (224, "report")
PICTURE = "docs/leaderboard.svg"


def page(store: Path, stored: Stored) -> str:
    """Return the page.

    Args:
        store: The store.
        stored: What was read of it.
    """
    for line in stored.left_out:
        print(line, file=sys.stderr)
    lines = lines_of(runs_of(store, stored), IN_FULL[1], IN_FULL[0])
    runs = frozen_runs(stored)
    apart = max(most_apart(runs, method) for method in ON_BOTH_MACHINES)
    head = HEAD.format(short=in_short(lines), apart=f"{apart:.1f}")
    return "\n".join([head, *of_streams(store, stored), GROUND])


def in_short(lines: Sequence[Line]) -> str:
    """Return on how many streams the methods that ran on every one end above the floor and below it."""
    streams = {line.stream for line in lines}
    sides: dict[str, list[int]] = {}
    for line in lines:
        sides.setdefault(line.method, []).append(_side(line.less_the_floor))
    on_all = [method for method, own in sides.items() if method != FLOOR and len(own) == len(streams)]
    on_all.sort(key=lambda method: -sides[method].count(1))
    few = _of_few_orders(lines)
    above, below = (
        "; ".join(
            f"{LABELS[method]} ({sides[method].count(side)}{few.get(method, '')})"
            for method in on_all
            if side in sides[method]
        )
        for side in (1, -1)
    )
    words = (
        f"In short, on ViT-Tiny, in five epochs without augmentation: beside `lda` {len(on_all)} rows "
        f"ran on all {len(streams)} streams. Streams where each is above `lda` (untuned, not always the best "
        f"floor), by uncorrected 95 % intervals: {above or 'none'}. Below it: {below or 'none'}."
    )
    return textwrap.fill(words, WIDTH, break_on_hyphens=False)


def _of_few_orders(lines: Sequence[Line]) -> dict[str, str]:
    """Return, by method, on which streams it has fewer orders than most methods, and how many."""
    usual = _usual_orders(lines)
    told: dict[str, str] = {}
    for line in lines:
        if len(line.runs) < usual[line.stream]:
            told[line.method] = told.get(line.method, "") + f"; on {line.stream} {len(line.runs)} orders"
    return told


def _usual_orders(lines: Sequence[Line]) -> dict[str, int]:
    """Return of how many orders most lines of a stream are."""
    orders: dict[str, list[int]] = {}
    for line in lines:
        orders.setdefault(line.stream, []).append(len(line.runs))
    return {stream: max(statistics.multimode(own)) for stream, own in orders.items()}


def of_streams(store: Path, stored: Stored) -> Iterator[str]:
    """Yield the lines of the tables of report streams: the larger images first.

    The first table has all columns; of the others the floor and the differences from it are shown.
    """
    for (size, role), lines in tables_of_streams(runs_of(store, stored)).items():
        if role != IN_FULL[1]:
            continue
        trained = [line for line in lines if line.method != FLOOR]
        sided = sum(bool(_side(line.less_the_floor)) for line in trained)
        caution = CAUTION if size == IN_FULL[0] else SMALL.format(sided=sided, unsure=unsure(trained))
        yield OF_STREAMS.format(size=size, caution=caution)
        name = f"{size}-{role}"
        if size == IN_FULL[0]:
            yield from marked(name, by_stream(by_accuracy(lines)))
            yield from (WORDS, "")
            yield from marked("legend", (*legend(lines), "", SEEN, *shared(role)))
        else:
            yield from marked(name, matrix(lines, list(dict.fromkeys(line.method for line in lines))))


def by_stream(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a table a stream, below its name."""
    for stream in dict.fromkeys(line.stream for line in lines):
        yield from (f"**{stream}**", "")
        yield from markdown([line for line in lines if line.stream == stream])
        yield ""


def marked(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a block of the page between its marks, which ``scripts/tables.py --print`` finds."""
    yield from (f"<!-- table: leaderboard-{name} -->", "", *lines, "", "<!-- end of table -->", "")


def legend(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what stands below the first table: words, and what they tell of its rows."""
    several = [line for line in lines if len(line.runs) > 1 and _spread(line.less_the_floor)]
    sure = [(line, line.less_by_orders()) for line in several if _side(line.less_the_floor)]
    other = _rows(line for line, by_orders in sure if _spread(by_orders) and not _side(by_orders))
    flat = str(sum(not _spread(by_orders) for _, by_orders in sure))
    apart = max(abs(run.faa - 100 * float(run.answers.right.mean())) for line in lines for run in line.runs)
    _, shrinkage, gains = by_shrinkage()
    told = {
        "{legend/rows/several}": str(len(several)),
        "{legend/rows/few}": str(len(sure)),
        "{legend/rows/other}": other,
        "{legend/rows/flat}": flat,
        "{legend/rows/apart}": f"{apart:.1f}",
        "{lda/development/shrinkage}": shrinkage,
        "{lda/development/by-shrinkage}": f"{min(gains.values()):+.1f} to {max(gains.values()):+.1f}",
    }
    yield from sentence(LEGEND, {}, 0, (), told)


def _rows(lines: Iterable[Line]) -> str:
    """Return rows by their names, each with its streams."""
    streams: dict[str, list[str]] = {}
    for line in lines:
        streams.setdefault(LABELS[line.method], []).append(f"`{line.stream}`")
    return "; ".join(f"{label} on {', '.join(own)}" for label, own in streams.items()) or "none"


def _spread(apart: Difference | None) -> bool:
    return apart is not None and apart.low is not None


def _side(apart: Difference | None) -> int:
    if apart is None or apart.low is None or apart.high is None:
        return 0
    return side_of_zero(apart.low, apart.high)


def tables_of_streams(runs: Sequence[StreamRun]) -> dict[tuple[int, str], list[Line]]:
    """Return the lines of streams by size and role, in the order of the page, which has report streams alone.

    Development streams at another size than the first have none.
    """
    sizes = sorted({run.size for run in runs}, reverse=True)
    wanted = [(size, role) for size in sizes for role in ROLES if IN_FULL[0] == size or role == IN_FULL[1]]
    every = {(size, role): lines_of(runs, role, size) for size, role in wanted}
    return {which: lines for which, lines in every.items() if lines}


def every_line(runs: Sequence[StreamRun]) -> list[Line]:
    """Return the lines of all streams, those of development streams too."""
    return [line for lines in tables_of_streams(runs).values() for line in lines]


def by_accuracy(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of each stream by how far they are above the floor on the same orders, the best first.

    Differences over other orders would rank the orders: lines of fewer than most have stand behind the
    others. What has no order of the floor stands last. Streams keep theirs.
    """
    streams = list(dict.fromkeys(line.stream for line in lines))
    usual = _usual_orders(lines)

    def place(line: Line) -> tuple[int, bool, float]:
        apart = line.less_the_floor
        above = -math.inf if apart is None else apart.mean
        if line.method == FLOOR:
            above = 0.0
        # of a head that sees no order one may stand for all
        is_behind = line.method != FLOOR and len(line.runs) < usual[line.stream]
        return streams.index(line.stream), is_behind, -above

    return sorted(lines, key=place)


def picture_of(runs: Sequence[StreamRun]) -> str:
    """Return the picture of the first table as SVG."""
    size, role = IN_FULL
    return picture(lines_of(runs, role, size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="is written anew")
    of_store = stored_runs(STORE, load_catalogue())
    parser.parse_args().page.write_text(page(STORE, of_store), encoding="utf-8")
