"""The layout of a store: where protocols, runs and badges lie, and how an empty one is made."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.structure import misfit
from lw2g.disk.protocol import digest_of, facts_of
from lw2g.disk.sealed import write_atomically
from lw2g.errors import ConfigError, DataError, as_word
from lw2g.interfaces.options import options_of_role
from lw2g.registry.catalogue import Catalogue
from lw2g_store.bounds import read_json
from lw2g_store.packs import require_hash

__all__ = [
    "BADGES",
    "PROTOCOLS",
    "RUNS",
    "add_protocol",
    "data_of",
    "init",
    "is_store",
    "naming_command",
    "packs_in",
    "protocol_of",
    "protocol_of_pack",
    "protocols_in",
    "require_store",
    "run_folder",
    "says_which_data",
    "take_back",
]

PROTOCOLS = "protocols"
RUNS = "runs"
BADGES = "badges"
# no pattern takes "..", a slash or a leading dot: names from records become folders
_NAME = r"[a-z0-9][a-z0-9.-]{0,60}"
_PLAIN = r"[a-z0-9][a-z0-9._-]{0,150}"
PROTOCOL_ID = re.compile(rf"{_NAME}/{_NAME}(?:/{_NAME})?@[1-9][0-9]{{0,3}}")
RUN_FOLDER = re.compile(
    rf"{RUNS}/(?P<protocol>{PROTOCOL_ID.pattern})/(?P<method>{_PLAIN})/(?P<sha>[0-9a-f]{{12}})"
)

_DEEPEST = 6
"""The slashes in the longest path of a run's folder."""


@attrs.frozen(kw_only=True)
class _Protocol:
    """A protocol's file; no seeds are all seeds."""

    id: str
    hash: str
    seeds: list[int]
    facts: dict[str, Any]


def is_store(directory: Path) -> bool:
    """Return whether a directory is a store."""
    return (directory / PROTOCOLS).is_dir()


def require_store(directory: Path) -> None:
    """Refuse a directory that is no store.

    Raises:
        DataError: It is none.
    """
    if not is_store(directory):
        raise DataError(
            f"{str(directory)!r} is no store: it has no folder {PROTOCOLS!r}", "lw2g store init DIR"
        )


def init(directory: Path) -> list[str]:
    """Make an empty store and return the names of its files.

    Raises:
        ConfigError: There is something already.
    """
    if directory.exists() and any(path.name != ".git" for path in directory.iterdir()):
        raise ConfigError(f"{str(directory)!r} is not empty", "name a new folder")
    contents = {}
    template = files("lw2g_store") / "template"
    for item in sorted(template.iterdir(), key=lambda item: item.name):
        # `__` stands for a folder's end and `dot-` for a leading dot
        name = item.name.replace("dot-", ".").replace("__", "/")
        contents[name] = item.read_bytes()
    names = list(contents)
    for folder in (PROTOCOLS, RUNS, BADGES, "reported"):
        contents[f"{folder}/.gitkeep"] = b""  # git knows no empty folders
    _write_all({directory / name: content for name, content in contents.items()})
    return names


def add_protocol(store: Path, record: Mapping[str, Any], seeds: list[int], data: str = "") -> Path:
    """Write the protocol that a run was made under, as the next version of its name, and return its file.

    Args:
        store: The store.
        record: The run's record.
        seeds: The seeds that runs may have; none for all.
        data: A name of the data for the id's last part, where the benchmark (``folder``) does not say it.

    Raises:
        DataError: The store has it already, or the record is older than protocols.
    """
    require_hash(record)
    known = protocol_of(store, record, required=False)
    if known is not None:
        raise DataError(f"the store has this protocol already: {known['id']}")
    facts = facts_of(record)
    name = f"{facts['benchmark']}/{facts['protocol']}"
    if data:
        name += f"/{data}"
    # versions are never overwritten: runs that lie in the store name them
    number = 1
    while (path := store / PROTOCOLS / f"{name}@{number}.json").exists():
        number += 1
    if not PROTOCOL_ID.fullmatch(f"{name}@{number}"):
        raise DataError(f"{name!r} cannot be the name of a folder", "use small letters, digits, - and .")
    content = {"id": f"{name}@{number}", "hash": digest_of(facts), "seeds": seeds, "facts": facts}
    _write_all({path: (json.dumps(content, indent=1) + "\n").encode()})
    return path


def says_which_data(record: Mapping[str, Any], catalogue: Catalogue) -> bool:
    """Return whether the benchmark of a record says which data it has; ``folder`` does not."""
    entry = catalogue.find("benchmark", record["config"]["benchmark"]["name"])
    return entry is None or not options_of_role(entry.component.config, "title")


def data_of(protocol: str) -> str:
    """Return the name of the data in a protocol's id; empty where its benchmark says which they are.

    It is empty for no protocol, too, as that of a pack outside a store.

    >>> data_of("folder/like-for-like/birds@1"), data_of("digits/like-for-like@1"), data_of("")
    ('birds', '', '')
    """
    name = protocol.partition("@")[0]
    return "".join(name.split("/")[2:])


def protocol_of_pack(folder: Path) -> str:
    """Return the id of the protocol under which a pack lies in a store; empty if it lies in none."""
    in_store = re.search(rf"/{RUN_FOLDER.pattern}$", folder.resolve().as_posix())
    return in_store["protocol"] if in_store else ""


def naming_command(store: Path, run: Path) -> str:
    """Return the command that adds the protocol of a run whose data the user has to name."""
    return f"lw2g store protocol {as_word(store)} {as_word(run)} --data NAME"


def _write_all(contents: Mapping[Path, bytes]) -> None:
    """Write files, all or none of them, and the folders above them."""
    above = {folder for path in contents for folder in path.parents if not folder.exists()}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
    except BaseException:  # a Ctrl-C, too
        for path in contents:
            path.unlink(missing_ok=True)
        for folder in sorted(above, reverse=True):  # the deepest first
            with suppress(OSError):  # somebody has put something there
                folder.rmdir()
        raise


def take_back(protocol: Path, store: Path) -> None:
    """Remove the file of a protocol that was just made, and the folders of its name that hold no other."""
    protocol.unlink()
    *folders, _, _ = protocol.relative_to(store).parents  # the last are those that every store has
    for folder in folders:
        with suppress(OSError):  # it holds other things
            (store / folder).rmdir()


def read_protocol(store: Path, name: str) -> dict[str, Any]:
    """Return a protocol of a store.

    Raises:
        DataError: There is none of this name, or its file is damaged.
    """
    path = store / PROTOCOLS / f"{name}.json"
    if not PROTOCOL_ID.fullmatch(name) or not path.is_file():
        raise DataError(f"the store has no protocol {name[:100]!r}")
    content: dict[str, Any] = read_json(path)
    # a stranger's words are cut where they would fill a screen
    if problem := misfit(content, _Protocol):
        raise DataError(f"{name!r} is no protocol: {problem[:200]}")
    if strange := sorted(content.keys() - attrs.fields_dict(_Protocol).keys()):
        raise DataError(f"{name!r} is no protocol: {strange[0][:60]!r} is unknown")
    if content["id"] != name:
        raise DataError(f"{name!r} is no protocol: its id is {content['id'][:100]!r}")
    if digest_of(content["facts"]) != content.get("hash"):
        raise DataError(f"the hash of protocol {name!r} is not that of its facts")
    return content


def protocol_of(
    store: Path, record: Mapping[str, Any], *, required: bool = True, remedy: str = ""
) -> dict[str, Any] | None:
    """Return the protocol of a store that a record fits; None outside of a store.

    Args:
        store: The store.
        record: The run's record.
        required: Whether to raise an error where the store has none.
        remedy: What to do about that.

    Raises:
        DataError: The store has none, and one is required.
    """
    if not is_store(store):
        return None
    unreadable: DataError | None = None
    for name in protocols_in(store):
        try:
            protocol = read_protocol(store, name)
        except DataError as error:  # another one may fit
            unreadable = error
            continue
        if protocol["hash"] == record["protocol_hash"]:
            return protocol
    if required:
        which = ""
        if unreadable is not None:
            which = f" that can be read ({unreadable.what[:200]})"
        raise DataError(
            f"the store has no protocol{which} with the hash of the run ({record['protocol_id']}, "
            f"{record['protocol_hash'][:12]})",
            remedy,
        )
    return None


def run_folder(store: Path, protocol: Mapping[str, Any], method: str, sealed: str) -> Path:
    """Return where a run lies in a store."""
    return store / RUNS / str(protocol["id"]) / method / sealed[:12]


def packs_in(store: Path) -> Iterator[str]:
    """Yield the folders of all runs of a store, as paths inside it, and whatever else lies beside them.

    Links are not followed. A stray file hides no run, and a folder too deep for a run is not entered.
    """
    if not (store / RUNS).is_dir():
        return
    waiting = [RUNS]
    while waiting:
        folder = waiting.pop()
        if RUN_FOLDER.fullmatch(folder) or folder.count("/") >= _DEEPEST:
            yield folder
            continue
        with os.scandir(store / folder) as entries:
            # the last in the alphabet first, because the list is taken from its end
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        for entry in found:
            inside = f"{folder}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(inside)
            elif entry.name != ".gitkeep":
                yield inside


def protocols_in(store: Path) -> list[str]:
    """Return the names of all files of protocols in a store, those that cannot be read too."""
    files = sorted((store / PROTOCOLS).rglob("*.json"))
    return [path.relative_to(store / PROTOCOLS).with_suffix("").as_posix() for path in files]
