"""The runs of a store as rows of a report: each pack is examined before anything of it is shown.

A pack that does not hold is left out and named; it hides no other one.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.directory import RECORD
from lw2g.config.roles import role_of_key
from lw2g.disk.protocol import digest_of, facts_of
from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, counted
from lw2g.interfaces.options import UNCOUNTED
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import Given, ReportedRun
from lw2g.results.row_names import settings_of
from lw2g_store.badges import read_badges
from lw2g_store.layout import (
    BADGES,
    RUN_FOLDER,
    data_of,
    packs_in,
    protocol_of_pack,
    read_protocol,
    require_store,
    says_which_data,
)
from lw2g_store.packs import Pack, is_pack, opened

__all__ = ["Stored", "beside", "stored_runs", "with_answers"]

_OF_AN_ORDER = {"class_order", "data", "test_ids", "test_labels"}
"""Facts of a protocol that are others in another class order of the same data."""
_NAMED = 3
"""Protocols that are named."""
_LONGEST = 40
"""The letters of a submitter's name that a row has room for."""


@attrs.frozen(kw_only=True)
class Stored:
    """What a store holds.

    Attributes:
        runs: Each pack that holds, with its run as a row of a report.
        left_out: What does not hold, one line each. It hides nothing else.
        num_broken: How many packs do not hold.
        elsewhere: The names of protocols that are of no interest, and how many runs each has.
    """

    runs: Sequence[tuple[Pack, ReportedRun]]
    left_out: Sequence[str]
    num_broken: int
    elsewhere: Mapping[str, int]


def stored_runs(store: Path, catalogue: Catalogue, hashes: Sequence[str] | None = None) -> Stored:
    """Return the runs of a store, with the badges that all runs of a submitter's row have.

    Args:
        store: Its folder.
        catalogue: Knows oracles.
        hashes: Hashes of the protocols of interest; None for all. Runs of others are not opened.

    Raises:
        DataError: There is no store.
    """
    require_store(store)
    left_out: list[str] = []
    elsewhere: Counter[str] = Counter()
    protocols: dict[Path, str] = {}
    protocol_of = functools.cache(functools.partial(read_protocol, store))
    # the runs of one method by one submitter: a row of a report, with the badges that all of them have
    rows: dict[tuple[str, str], list[Pack]] = defaultdict(list)
    for folder in packs_in(store):
        try:
            if (fits := RUN_FOLDER.fullmatch(folder)) is None:
                raise DataError(f"{folder[:100]!r} is no folder of a run")
            name = fits["protocol"]
            protocol = protocol_of(name)
            if hashes is None or protocol["hash"] in hashes:
                pack = opened(store / folder, catalogue, protocol)
                protocols[pack.path] = name
                rows[str(pack.path.parent), pack.submission["who"]].append(pack)
            else:
                elsewhere[name] += 1
        except DataError as error:
            left_out.append(f"left out of the store: {error.what}")
    num_broken = len(left_out)
    runs: list[tuple[Pack, ReportedRun]] = []
    for packs in rows.values():
        badges, unread = _common_badges(store, packs)
        left_out += unread
        for pack in packs:
            runs.append((pack, _reported(pack, protocols[pack.path], badges)))
    return Stored(runs=runs, left_out=left_out, num_broken=num_broken, elsewhere=elsewhere)


def _common_badges(store: Path, packs: Sequence[Pack]) -> tuple[tuple[str, ...], list[str]]:
    """Return the badges that each of some packs has, and a line for each file of badges that cannot be read.

    That its numbers were recomputed holds for all.
    """
    common: set[str] | None = None
    unread = []
    for pack in packs:
        path = store / BADGES / f"{pack.record['sha256'][:12]}.json"
        badges: list[dict[str, Any]] = []
        if path.exists():
            try:
                badges = read_badges(path)
            except DataError as error:
                unread.append(f"left out of the store: {error.what}")
        badge_names = {badge["badge"] for badge in badges if badge["holds"]}
        common = badge_names if common is None else common & badge_names
    confirmed = (common or set()) - {"recomputed"}
    return ("recomputed", *sorted(confirmed)), unread


def _reported(pack: Pack, protocol: str, badges: tuple[str, ...]) -> ReportedRun:
    """Return a pack as a run that reports take."""
    given = Given(
        who=str(pack.submission["who"])[:_LONGEST],
        tuned_on=str(pack.submission["tuned_on"]),
        protocol=protocol,
        badges=badges,
        plugin=str(pack.submission.get("plugin", "")),
        runs=int(pack.submission["runs"]),
    )
    return ReportedRun(
        path=pack.path,
        state="finished",
        config=pack.record["config"],
        record=pack.record,
        given=given,
        answers=pack.evaluations[-1],
        data=data_of(protocol),
    )


def with_answers(
    runs: Sequence[ReportedRun], catalogue: Catalogue
) -> tuple[list[ReportedRun], Sequence[str]]:
    """Give each pack among some runs the predictions that it holds, and its data's name in a store.

    Returns:
        The runs, and a line for each pack that does not hold, which is left out.
    """
    held = []
    left_out = []
    for run in runs:
        if not is_pack(run.path):
            held.append(run)
            continue
        try:
            pack = opened(run.path, catalogue)
        except DataError as error:
            left_out.append(str(error))
        else:
            data = data_of(protocol_of_pack(run.path))
            held.append(attrs.evolve(run, answers=pack.evaluations[-1], data=data))
    return held, left_out


def beside(
    store: Path, catalogue: Catalogue, mine: Sequence[ReportedRun]
) -> tuple[list[ReportedRun], Sequence[str]]:
    """Return the runs of a store that were made under the protocols of one's own, except these themselves.

    A pack has neither class names nor folders of data; equal hashes say that they are those of one's own.

    Returns:
        The runs, and a line for each pack that does not hold, and one if no run is added.
    """
    by_protocol = {run.record["protocol_hash"]: run for run in mine if run.record.get("protocol_hash")}
    originals = {sha256_of(run.path / RECORD) for run in mine}
    stored = stored_runs(store, catalogue, list(by_protocol))
    others = []
    for pack, run in stored.runs:
        if pack.submission["original"] in originals:  # a run beside its own copy would count twice
            continue
        same_protocol = by_protocol[pack.record["protocol_hash"]]
        benchmark = dict(run.config["benchmark"])
        for name, value in same_protocol.config["benchmark"].items():
            if role_of_key(f"benchmark.{name}", same_protocol.config, catalogue) in UNCOUNTED:
                benchmark[name] = value
        config = {**run.config, "benchmark": benchmark}
        record = {**run.record, "config": config, "class_names": same_protocol.record["class_names"]}
        others.append(attrs.evolve(run, config=config, record=record))
    if others:
        return _with_joined_orders(others, catalogue), stored.left_out
    return [], [*stored.left_out, _none_added(store, stored, mine, catalogue)]


def _with_joined_orders(runs: Sequence[ReportedRun], catalogue: Catalogue) -> list[ReportedRun]:
    """Return runs of a store, where those that differ in seed and class order alone are one row.

    The row has all versions of the protocol, and the badges that all its runs have.
    """
    rows: dict[Any, list[tuple[ReportedRun, Given]]] = defaultdict(list)
    for run in runs:
        if run.given is not None:
            name, _, _ = run.given.protocol.rpartition("@")
            same = attrs.evolve(run.given, protocol=name, badges=(), runs=1)
            rows[_without_order(run, catalogue), same].append((run, run.given))
    joined = []
    for (_, same), row in rows.items():
        versions = sorted({int(given.protocol.rpartition("@")[2]) for _, given in row})
        protocol = f"{same.protocol}@{', @'.join(map(str, versions))}"
        badges = [badge for badge in row[0][1].badges if all(badge in given.badges for _, given in row)]
        most = max(given.runs for _, given in row)
        given = attrs.evolve(same, protocol=protocol, badges=tuple(badges), runs=most)
        joined += [attrs.evolve(run, given=given) for run, _ in row]
    return joined


def _without_order(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return a hash of the options, the classes and the protocol of a run, but seed and class order."""
    facts = {name: value for name, value in facts_of(run.record).items() if name not in _OF_AN_ORDER}
    images = None
    # a folder's images may have changed; those that are drawn differ with the order's seed
    if not says_which_data(run.record, catalogue) and run.options.get("benchmark.test_share") is None:
        images = sorted(set(run.record.get("image_hashes") or ()))
    return digest_of([settings_of(run, catalogue).values, facts, sorted(run.record["class_names"]), images])


def _none_added(store: Path, stored: Stored, mine: Sequence[ReportedRun], catalogue: Catalogue) -> str:
    """Return why no run of a store is added: what is the matter with each."""
    num_own, num_elsewhere = len(stored.runs), sum(stored.elsewhere.values())
    num_runs = num_own + num_elsewhere + stored.num_broken
    reasons = []
    if num_own:
        reasons.append(f"{num_own} {'is' if num_own == 1 else 'are'} among these")
    if num_elsewhere:
        names = list(stored.elsewhere)
        further = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        has = "has" if num_elsewhere == 1 else "have"
        reasons.append(f"{num_elsewhere} {has} another protocol ({', '.join(names[:_NAMED])}{further})")
        reasons += _nearest(store, names, mine, catalogue)
    if stored.num_broken:
        reasons.append(f"{stored.num_broken} {'does' if stored.num_broken == 1 else 'do'} not hold")
    text = f"of {counted(num_runs, 'run')} in {str(store)!r} none was added"
    return f"{text}: {', '.join(reasons)}" if reasons else text


def _nearest(
    store: Path, names: Sequence[str], mine: Sequence[ReportedRun], catalogue: Catalogue
) -> Iterator[str]:
    """Yield which protocol of the same benchmark differs least from that of one's own runs, and in what."""
    run = next((run for run in mine if "protocol_facts" in run.record), None)
    if run is None:
        return
    facts = facts_of(run.record)
    differing = {}
    for name in names:
        others = read_protocol(store, name)["facts"]
        if others.get("benchmark") == facts["benchmark"]:
            differing[name] = _differing(facts, others)
    if not differing:
        return
    least = min(differing, key=lambda name: len(differing[name]))
    what = ", ".join(sorted(differing[least])).replace("_", " ")
    if not says_which_data(run.record, catalogue):
        what = what.replace("class order", "class order or other data")
    if what:
        yield f"of these {least} is nearest, with another {what}"


def _differing(facts: Mapping[str, Any], others: Mapping[str, Any]) -> set[str]:
    """Return the facts that are others; a class order stands for those that change with it."""
    differing = {name for name in facts if facts[name] != others.get(name)}
    if "class_order" in differing:
        differing -= _OF_AN_ORDER - {"class_order"}
    return differing
