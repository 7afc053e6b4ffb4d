"""The functions of lw2g for models on the hub: push and pull.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lw2g.config.directory import LEARNED, MANIFEST, WEIGHTS
from lw2g.errors import ConfigError, DataError, counted, shown
from lw2g.ground.free_memory import require_memory
from lw2g.ground.hub_address import is_commit, is_hub_address, parsed_address
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths

if TYPE_CHECKING:
    from lw2g_hub.hub_client import Repository

__all__ = ["CARD", "pull", "push"]

CARD = "README.md"
"""The card's name in a repository."""
_BRANCH = "main"
_MB = 1_000_000
_LARGEST_MANIFEST = 25 * _MB
_LARGEST_CARD = _MB


@expands_paths
def push(
    model: str | Path,
    repo: str,
    *,
    public: bool = False,
    learnable: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Put the exported ``model`` into the repository ``repo`` (OWNER/NAME) on the hub, in one commit.

    With it goes a card that its record writes: classes, accuracy, calibration, backbone, what it learned and
    forgot. Paths, names of files and names of forgotten classes stay here. A new repository is private. The
    token is that of the hub's client (``hf auth login``, or HF_TOKEN).

    Args:
        model: The directory of the export, which is not changed.
        repo: ``OWNER/NAME``.
        public: Whether to let everybody see a new repository; needed to push to a public one, too.
        learnable: Whether to send the features of learned images, too, by which a copy can take classes
            back; they tell about the images.
        dry_run: Whether to send nothing, and print the files with their sizes and the card.

    Returns:
        ``address``, with the commit unless nothing was sent; ``private`` (None where nothing was sent);
        ``files``, their bytes by name; and ``card``, its text.

    Raises:
        DataError: There is no such model, or the hub refuses or cannot be reached.
        ConfigError: There is no token, the repository is public and nobody said so, or the model's
            description names a place of this machine.
    """
    from lw2g.maths.few_rows import rows_in
    from lw2g.model.exported import read_export
    from lw2g_hub.model_card import card_of
    from lw2g_hub.pushed_model import published

    place, revision = parsed_address(repo if is_hub_address(repo) else f"hf://{repo}")
    if revision is not None:
        raise ConfigError(f"repo: {shown(repo)} names a revision, and a push makes one", f"write {place}")
    if not dry_run:
        from lw2g_hub.hub_client import require_token

        require_token()
    saved = read_export(Path(model), whole=learnable)
    files = _contents(published(saved, learnable=learnable))
    files[CARD] = card_of(saved, place).encode()
    rows = rows_in(saved.tensors)
    if rows:
        tell_note(
            f"{WEIGHTS} holds the features of {counted(rows, 'image')}, as in any model of few images, where "
            "they take less room than sums; they tell about the images"
        )
    if saved.manifest.fingerprint.source == "file":
        tell_note(
            "the backbone's weights came as a file and do not go along: others get those of this name, or "
            f"need the file with SHA-256 {saved.manifest.fingerprint.sha256}"
        )
    report: dict[str, Any] = {"address": f"hf://{place}", "private": None}
    if not dry_run:
        report |= _sent(place, files, public=public)
    sizes = {name: len(content) for name, content in files.items()}
    return {**report, "files": sizes, "card": files[CARD].decode()}


def _contents(saved: Any) -> dict[str, bytes]:
    """Return the files of a model."""
    from lw2g.model.exported import write_export

    with tempfile.TemporaryDirectory(prefix="lw2g-push-") as folder:
        made = Path(folder) / "model"
        write_export(saved, made)
        return {path.name: path.read_bytes() for path in sorted(made.iterdir())}


def _sent(place: str, files: dict[str, bytes], *, public: bool) -> dict[str, Any]:
    """Put files into a repository, which is made where there is none; return what was done.

    Args:
        place: ``OWNER/NAME``.
        files: Contents by name; the card becomes the one that stands there with its record's part renewed.
        public: As for :func:`push`.
    """
    from lw2g_hub.hub_client import commit, create, known_repository

    there = known_repository(place)
    if there is None:
        there = create(place, public=public)
    elif not there.private and not public:
        raise ConfigError(
            f"the repository {place!r} is public", "push to it with --public, or choose another one"
        )
    elif there.private and public:
        tell_note(
            f"the repository {place!r} is private and stays so; its settings on the hub can change that"
        )
    if CARD in there.sizes:
        files[CARD] = _renewed_card(there, files[CARD])
    # what an earlier push had and this one has not: the history of the repository keeps it
    gone = [name for name in (LEARNED,) if name in there.sizes and name not in files]
    made = commit(there, files, gone=gone)
    return {"address": f"hf://{place}@{made}", "private": there.private}


def _renewed_card(there: Repository, card: bytes) -> bytes:
    """Return the card of a repository with what the record says now; as it is where it has no such part."""
    from lw2g_hub.hub_client import file_of
    from lw2g_hub.model_card import renewed

    if there.sizes[CARD] > _LARGEST_CARD:
        raise DataError(f"{CARD} of {there.repo!r} has {there.sizes[CARD]} bytes", "shorten it")
    old = file_of(there, CARD).read_bytes()
    new = renewed(old.decode("utf-8", errors="replace"), card.decode())
    if new is None:
        tell_note(f"{CARD} of {there.repo!r} has no part for the record, and stays as it is")
        return old
    return new.encode()


@expands_paths
def pull(address: str | Path, out: str | Path | None = None) -> Path:
    """Copy the model at ``address`` (hf://OWNER/NAME@REVISION) from the hub into a new folder.

    Without a revision it is that of today; a note names the commit. Only JSON and safetensors are read. From
    Python, ``lw2g.load`` takes the address itself.

    Args:
        address: ``hf://OWNER/NAME``, and ``@`` with a branch, a tag or a commit behind it.
        out: The folder; None for the cache of the hub's client, from where nothing may be changed.

    Returns:
        The folder.

    Raises:
        DataError: There is no such model, it is damaged or none that lw2g has pushed, or the hub refuses or
            cannot be reached.
        ConfigError: The address is none, or ``out`` is in use.
    """
    repo, revision = parsed_address(address)
    names = [MANIFEST, WEIGHTS] if out is None else [MANIFEST, WEIGHTS, LEARNED]
    if out is None:
        return _fetched(repo, revision, names)
    from lw2g.model.exported import read_export, write_export
    from lw2g.model.places import reserved

    with reserved(Path(out)) as place:
        folder = _fetched(repo, revision, names)
        write_export(read_export(folder, whole=True), place)
    return place


def _fetched(repo: str, revision: str | None, names: list[str]) -> Path:
    """Return the folder of a model in the cache of the hub's client, fetched where it is not there."""
    from lw2g_hub.hub_client import NoAnswerError, snapshot

    folder = None
    if is_commit(revision):  # it stays what it is: what was fetched once is not asked for again
        folder = snapshot(repo, revision, names)
    if folder is None:
        try:
            folder = _asked_for(repo, revision, names)
        except NoAnswerError as error:
            folder = snapshot(repo, revision, names)
            if folder is None:
                raise
            tell_note(f"{error.what}: it is the model that was read before")
    _require_harmless(folder, repo)
    tell_note(f"read hf://{repo}@{folder.name}")
    return folder


def _asked_for(repo: str, revision: str | None, names: list[str]) -> Path:
    """Return the same, as the hub has it now."""
    from lw2g.model.exported import read_manifest
    from lw2g_hub.hub_client import file_of, known_repository

    there = known_repository(repo, revision)
    if there is None:
        raise DataError(
            f"the hub has no model {repo!r} that you may see",
            "check the name; for a private one log in: hf auth login",
        )
    _require_model(there)
    # by its name: the cache keeps what a branch was, for when the hub cannot be reached
    folder = file_of(attrs.evolve(there, commit=revision or _BRANCH), MANIFEST).parent
    _require_harmless(folder, repo)  # before anything large is fetched
    there = attrs.evolve(there, commit=folder.name)
    for name in names:
        if name == WEIGHTS or name in read_manifest(folder).files:
            file_of(there, name)
    return folder


def _require_model(there: Repository) -> None:
    """Refuse a repository without a model of lw2g, or with one that is too large, before it is fetched.

    Raises:
        DataError: It has none, or its description is too large.
        ConfigError: Its tensors do not fit into the memory.
    """
    missing = [name for name in (MANIFEST, WEIGHTS) if name not in there.sizes]
    if missing:
        raise DataError(f"{there.repo!r} holds no model of lw2g (no {missing[0]})", "lw2g push makes one")
    if there.sizes[MANIFEST] > _LARGEST_MANIFEST:
        raise DataError(
            f"{MANIFEST} of {there.repo!r} has {there.sizes[MANIFEST]} bytes, more than {_LARGEST_MANIFEST}",
            "take another model",
        )
    # the file and the tensors in it
    needed = 2 * max(there.sizes[WEIGHTS], there.sizes.get(LEARNED, 0))
    require_memory(needed, f"the model {there.repo!r}", "take another model")


def _require_harmless(folder: Path, repo: str) -> None:
    """Refuse a model whose description was not written by a push: it may name files of whoever opens it.

    Raises:
        DataError: It names a place on a disk, or code that transforms images.
    """
    from lw2g.model.exported import read_manifest
    from lw2g_hub.pushed_model import misplaced_path

    manifest = read_manifest(folder)
    found = misplaced_path(manifest)
    if found is not None:
        where, text = found
        raise DataError(
            f"{MANIFEST} of {repo!r} names a place on a disk ({where}: {shown(text)})",
            "nothing was opened; take a model that lw2g push has written",
        )
    if manifest.benchmark is not None:
        raise DataError(
            f"{MANIFEST} of {repo!r} wants images transformed by benchmark {manifest.benchmark.name!r}",
            "nothing was opened; take a model that lw2g push has written",
        )
