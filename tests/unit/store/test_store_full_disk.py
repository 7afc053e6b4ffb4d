"""A disk that is full leaves a store as it was, whichever of the files it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lw2g.registry.catalogue import Catalogue
from lw2g_store import stores
from lw2g_store.badges import Badge, add_badge
from lw2g_store.layout import init
from lw2g_store.packs import opened
from lw2g_store.store_checks import check_store
from store_packs import TOLD, only


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the disk take so many files, and refuse each further one when its bytes reach it."""
    left = [0]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fsync = os.fsync

    def synced(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            count()
        fsync(handle)

    def written(path: Path, content: Any, **_: Any) -> None:
        with path.open("wb"):  # half a file: what a plain write leaves
            count()

    def set_room(files: int) -> None:
        left[0] = files
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(Path, "write_bytes", written)
        monkeypatch.setattr(Path, "write_text", written)

    return set_room


def _tree(folder: Path) -> dict[str, bytes | None]:
    found = {}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else None
    return found


@pytest.mark.parametrize("files", range(5))
def test_a_pack_is_whole_or_not_there(
    honest: tuple[Path, Path, Path], tmp_path: Path, refuse: Callable[[int], None], files: int
) -> None:
    """Neither a part of a pack nor the protocol that came for it stays; the command can be given again."""
    init(tmp_path / "store")
    before = _tree(tmp_path)
    refuse(files)
    with pytest.raises(OSError, match="No space left"):
        stores.submit(honest[0], out=tmp_path / "store", new_protocol=True, **TOLD)
    assert _tree(tmp_path) == before
    refuse(9)
    pack, protocol = stores.submit(honest[0], out=tmp_path / "store", new_protocol=True, **TOLD)
    assert len(list(pack.path.iterdir())) == 4
    assert protocol is not None


def test_a_killed_submission_is_cleared_away(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue
) -> None:
    """What a process that died has left beside its pack goes when the run is submitted again."""
    folder = only(store)
    part = folder.with_name(f".{folder.name}.{'0' * 16}.lw2g-part")
    folder.rename(part)
    (part / "submission.json").unlink()
    stores.submit(honest[0], out=store, **TOLD)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert all(verdict.holds for verdict in check_store(store, known))


def test_protocols_badges_and_new_stores_are_whole_or_not_there(
    honest: tuple[Path, Path, Path],
    store: Path,
    known: Catalogue,
    tmp_path: Path,
    refuse: Callable[[int], None],
) -> None:
    """What stood there before stays, an older badge too."""
    pack = opened(only(store), known)
    add_badge(store, pack, Badge(badge="re-predicted", holds=True, text="first"))
    (protocol,) = store.glob("protocols/*/*.json")
    other = Path(shutil.copytree(store, tmp_path / "other"))
    (other / protocol.relative_to(store)).unlink()
    before = _tree(tmp_path)
    for room, write in (
        (0, lambda: add_badge(store, pack, Badge(badge="re-predicted", holds=True, text="second"))),
        (0, lambda: stores.add_protocol(other, honest[0])),
        (0, lambda: stores.init_store(tmp_path / "deep" / "new")),
        (7, lambda: stores.init_store(tmp_path / "deep" / "new")),
    ):
        refuse(room)
        with pytest.raises(OSError, match="No space left"):
            write()
        assert _tree(tmp_path) == before
