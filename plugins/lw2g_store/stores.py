"""The functions of lw2g for results that others can check: submit and verify a run, make and check a store.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lw2g.api.tabular import Verification
from lw2g.config.directory import require_run
from lw2g.disk.contents import read_record
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.ground.spelling import expands_paths
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g_store import LICENCES

if TYPE_CHECKING:
    from lw2g.results.verdicts import Verdict
    from lw2g_store.badges import Badge
    from lw2g_store.submit import Packed

__all__ = ["LICENCES", "add_protocol", "check_store", "init_store", "repredict", "submit", "verify"]

_NEEDED = ("who", "licence", "tuned_on", "runs")


@expands_paths
def submit(
    run: str | Path,
    *,
    out: str | Path = "submission",
    who: str | None = None,
    licence: str | None = None,
    tuned_on: str | None = None,
    runs: int | None = None,
    hardware: str = "",
    contact: str = "",
    paper: str = "",
    new_protocol: bool = False,
    replaces: str = "",
    plugin: str = "",
) -> tuple[Packed, Path | None]:
    """Verify the run in the directory ``run`` and pack its record, configuration and predictions.

    Paths, user and system of this machine and the names of classes are left out. Nothing is uploaded: add the
    folder to a checkout of the store and open a pull request.

    Args:
        run: The run's directory.
        out: A store, or a folder for packs.
        who: Your name or a pseudonym. [required]
        licence: Terms under which you give the run away. [required]
        tuned_on: What was tuned, and on which images; ``nothing`` counts. [required]
        runs: Number of runs made for this one. [required]
        hardware: What it ran on, if the record should not be the only word.
        contact: Where to reach you.
        paper: Address of a paper.
        new_protocol: Whether to add the run's protocol to a store ``out`` that lacks it, for a store of your
            own and data that the benchmark names.
        replaces: The checksum of the stored record that this one corrects.
        plugin: Where a plugin lies that is on no package index.

    Returns:
        The pack, and the file of the protocol that was added to the store, if one was.

    Raises:
        ConfigError: Something required is missing, or not in its form.
        DataError: The run does not hold, or the store has no such protocol.
    """
    from lw2g.disk.origins import made_with
    from lw2g_store.layout import take_back
    from lw2g_store.submit import submit as pack

    told = {
        "who": who,
        "licence": licence,
        "tuned_on": tuned_on,
        "runs": runs,
        "hardware": hardware,
        "contact": contact,
        "paper": paper,
        "replaces": replaces,
        "plugin": plugin,
    }
    require_run(Path(run))  # first: what is told of a run that is not there was told in vain
    _require_told(told)
    place = Path(out)
    catalogue = load_catalogue(made_with=made_with(Path(run)))
    # first: a pack is checked against its store's protocol
    added = _added_protocol(Path(run), place, catalogue) if new_protocol else None
    try:
        return pack(Path(run), catalogue, place, told), added
    except BaseException:
        # a store is left as it was, after a full disk or a Ctrl-C too
        if added is not None:
            take_back(added, place)
        raise


def _require_told(told: Mapping[str, Any]) -> None:
    """Refuse what a submitter has left out or cannot have meant.

    Raises:
        ConfigError: Something is missing or not in its form.
    """
    from lw2g_store.claims import is_line
    from lw2g_store.packs import PAPER, PLUGIN, SEAL

    missing = [_flag(name) for name in _NEEDED if not str(told[name] or "").strip()]
    if missing:
        raise ConfigError(
            f"submit: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            "say who gives the run, under which licence, what was tuned on which images, and how many runs "
            "were made for this one",
        )
    for name, value in told.items():
        if isinstance(value, str) and not is_line(value):
            raise ConfigError(f"{_flag(name)}: more than one line or 1,000 letters", "shorten it")
    if told["paper"] and not re.fullmatch(PAPER, told["paper"]):
        raise ConfigError(
            f"--paper: {told['paper']!r} is no address",
            "write https://HOST/PATH, for a DOI https://doi.org/DOI",
        )
    if told["plugin"] and not re.fullmatch(PLUGIN, told["plugin"]):
        raise ConfigError(
            f"--plugin: {told['plugin']!r} is not an address and a commit",
            "write https://HOST/PATH@COMMIT, with all 40 digits of the commit",
        )
    if told["replaces"] and not re.fullmatch(SEAL, told["replaces"]):
        raise ConfigError(
            f"--replaces: {told['replaces']!r} is not the checksum of a record",
            "write the 64 digits that its submission.json has as `record`",
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _added_protocol(run: Path, out: Path, catalogue: Catalogue) -> Path | None:
    """Add the run's protocol to a store; return its file, or None where the store has the protocol.

    Raises:
        ConfigError: Its id would not name the data, which a user gave to the benchmark.
    """
    from lw2g_store.layout import (
        add_protocol,
        naming_command,
        protocol_of,
        require_store,
        says_which_data,
    )

    require_store(out)
    record = read_record(run)
    if protocol_of(out, record, required=False) is not None:
        return None
    if not says_which_data(record, catalogue):
        benchmark = record["config"]["benchmark"]["name"]
        raise ConfigError(
            f"--new-protocol: {benchmark!r} does not say which data these are",
            f"name them: {naming_command(out, run)}, then submit",
        )
    return add_protocol(out, record, [])


@expands_paths
def verify(*runs: str | PathLike[str]) -> Verification:
    """Check runs, and packs of stores, in and below the given directories.

    It compares every file with its checksum, and every matrix and metric with its value recomputed from the
    stored predictions. It needs no torch.

    Args:
        *runs: The directories, or results of :func:`lw2g.run` and :func:`lw2g.sweep`. Of several runs each
            finding has the run's directory before its file, and a run that cannot be read is a finding.

    Raises:
        DataError: No directory is given, or there is no run in or below one.
    """
    directories = list(map(Path, runs))
    if not directories:
        raise DataError("no directory was given", "give directories of runs")
    places = runs_to_verify(directories)
    if places == directories[:1]:
        return Verification(_verdicts(places[0]))
    from lw2g.results.verdicts import Verdict

    verdicts = []
    for place in places:
        try:
            of_run = _verdicts(place)
        except Lw2gError as error:
            verdicts.append(Verdict(what=str(place), holds=False, text=str(error)))
        else:
            verdicts += [attrs.evolve(one, what=str(place / one.what)) for one in of_run]
    return Verification(verdicts)


def _verdicts(place: Path) -> Sequence[Verdict]:
    """Return the findings on the run, or the pack of a store, in a directory."""
    from lw2g_store import packs

    if packs.is_pack(place):
        return list(packs.verify(place, load_catalogue()))
    from lw2g.results.verification import verify as examine

    return list(examine(place))


def runs_to_verify(directories: Sequence[Path]) -> list[Path]:
    """Return each run and pack in or below directories once; of one without any the directory itself."""
    from lw2g.results.found_runs import find_runs
    from lw2g_store import packs

    places = []
    for directory in directories:
        if packs.is_pack(directory) or not directory.is_dir():
            places.append(directory)
        else:
            places += [run.path for run in find_runs([directory], damaged=True)] or [directory]
    return list(dict.fromkeys(places))


@expands_paths
def init_store(directory: str | Path) -> list[Path]:
    """Make the layout of a store in a new folder, with README, licence, schema and CI workflow.

    Args:
        directory: The folder.

    Returns:
        The files.

    Raises:
        ConfigError: The folder is in use.
    """
    from lw2g_store.layout import init

    place = Path(directory)
    return [place / name for name in init(place)]


@expands_paths
def add_protocol(
    directory: str | Path, run: str | Path, *, seeds: Sequence[int] = (), data: str = ""
) -> Path:
    """Write what ``run`` was evaluated under into a store, as the next version of its name.

    Args:
        directory: The store.
        run: The run's directory.
        seeds: Seed that runs may have, of any if none is named; a list for several.
        data: Name of the data in the id, which ``folder`` needs.

    Returns:
        The protocol's file.

    Raises:
        DataError: There is no store or no run, or the store has the protocol.
        ConfigError: The id would not name the data, which a user gave to the benchmark.
    """
    from lw2g_store.layout import add_protocol as add
    from lw2g_store.layout import require_store, says_which_data

    require_store(Path(directory))
    record = read_record(Path(run))
    if not data and not says_which_data(record, load_catalogue()):
        benchmark = record["config"]["benchmark"]["name"]
        raise ConfigError(f"{benchmark!r} does not say which data these are", "name them: --data NAME")
    return add(Path(directory), record, list(seeds), data)


@expands_paths
def check_store(directory: str | Path, *, changed: Sequence[str] | None = None) -> Verification:
    """Check all runs and badges of a store, without torch and without running anybody's code.

    Paths, sizes, seals, the protocol, every metric from the predictions, and whatever is told twice.

    Args:
        directory: The store.
        changed: Check the one run that a change adds: the output of ``git diff --name-status BASE HEAD``,
            line by line; None for the whole store.

    Raises:
        DataError: There is no store, or ``changed`` is no such output.
    """
    from lw2g_store.store_checks import check_store as check

    return Verification(check(Path(directory), load_catalogue(), changed))


@expands_paths
def repredict(
    pack: str | Path,
    model: str | Path,
    *,
    data: str | Path | None = None,
    fresh: int | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
) -> Iterator[tuple[Badge, Path | None]]:
    """Compare the predictions in ``pack`` with those of the exported ``model``, image by image.

    Images come in random order. The plugins of the model run here: use a model of components that you trust.

    Args:
        pack: The pack's folder.
        model: The export.
        data: The root of the data, or the file of features.
        fresh: Whether to draw also new test images, with this seed (glyphs).
        device: Where the model computes.
        store: Write the badges that hold into this store.

    Yields:
        Each badge, and the file into which it was written, if it was.

    Raises:
        DataError: The pack does not hold, or model, protocol and data do not belong together.
    """
    from lw2g_store.badges import add_badge, predicted_again
    from lw2g_store.packs import opened

    run = opened(Path(pack), load_catalogue())
    root = None if data is None else Path(data)
    for badge in predicted_again(run, Path(model), data=root, fresh=fresh, device=device):
        # a store shows what was confirmed, and nothing of what was not
        if store is None or not badge.holds:
            yield badge, None
        else:
            yield badge, add_badge(Path(store), run, badge)
