"""What a store takes, and what a submitter is told."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest

from lw2g.disk.contents import record_hash
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.manager import Origin
from lw2g.results.verification import verify as verify_run
from lw2g_store.layout import init
from lw2g_store.packs import PAPER, PLUGIN, SEAL, verify
from lw2g_store.store_checks import check_store
from lw2g_store.submit import submit
from store_packs import TOLD, failed, forge, invoke, only

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "store.md"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": 9}, "the run has finished 5 of 9 tasks; lw2g resume"),
        ({"origin": {"run": "x", "task": 0, "changed": []}}, "is a fork"),
        ({"protocol_hash": None}, "run it anew: lw2g.run('RUN/config.toml'"),
        ({"oracle": True}, "retrieval 'oracle' is told the task"),
        ({"local": True}, "belongs to no installed distribution"),
        ({"code": ["0.1 aa", "0.1 bb"]}, "by several versions of my-method's code; run its whole"),
    ],
)
def test_runs_that_no_store_takes_are_refused(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """Unfinished runs, forks, oracles, local components, changed code, old records: nothing is left."""
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    record = unseal_json(run / "record.json")
    if "oracle" in change:
        record["config"]["retrieval"] = {"name": "oracle"}
    if "local" in change:
        record["config"]["baseline"]["name"] = "local-mine"
    if "code" in change:
        of_mine = {"plugin": "mine", "distribution": "my-method", "version": "0.1"}
        noted = {"components": [{"kind": "policy", "name": "mine", **of_mine}]}
        code = {"my-method": change["code"]}
        (run / "plugins.json").write_bytes(seal_json({**noted, "code": code}))
    (run / "record.json").write_bytes(seal_json(record | {k: v for k, v in change.items() if k in record}))
    with pytest.raises(DataError) as caught:
        submit(run, known, tmp_path / "out", TOLD)
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_run_without_its_checkpoints_is_packed(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """They are no part of a pack; `lw2g verify` still says that they are missing."""
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    pack = submit(run, known, tmp_path / "out", TOLD)
    assert all(verdict.holds for verdict in verify(pack.path, known))
    missing = [verdict.what for verdict in verify_run(run, known) if verdict.holds is False]
    assert missing
    assert all(what.startswith("checkpoints/") for what in missing)


def test_a_protocol_is_named_after_the_data(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """`store protocol --data` names what the benchmark does not; runs lie under that id and hold."""
    init(tmp_path / "store")
    made = invoke("store", "protocol", tmp_path / "store", honest[0], "--data", "photos.0.224")
    assert made.exit_code == 0
    assert made.output.strip().endswith("glyphs/like-for-like/photos.0.224@1.json")
    pack = submit(honest[0], known, tmp_path / "store", TOLD).path
    assert "like-for-like/photos.0.224@1/" in pack.as_posix()
    assert all(verdict.holds for verdict in check_store(tmp_path / "store", known))
    refused = invoke("store", "protocol", tmp_path / "store", honest[0], "--data", "Two Words")
    assert refused.exit_code == 2


def test_a_first_submission_passes_the_check_of_its_change(
    honest: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """The protocol is committed first, as the command says; the run's folder alone is the proposal."""
    store = tmp_path / "store"

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(store), "-c", "user.name=me", "-c", "user.email=me@example.org", *words],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    printed = invoke("store", "init", store)
    assert f"pip wheel --no-deps ./CHECKOUT -w {store / 'tools'}" in printed.output
    naming = f"first lw2g store protocol {store} RUN --data NAME, then submit it without --new-protocol"
    assert naming in printed.output
    assert f"then: git init {store} && git -C {store} add . && git -C {store} commit" in printed.output
    git("init", "--quiet")
    again = invoke("store", "init", store / "inner")
    assert f"then: git -C {store / 'inner'} add ." in again.output
    shutil.rmtree(store / "inner")
    git("add", "--all")
    git("commit", "--quiet", "--message", "store")
    (command,) = re.findall("lw2g (submit RUN --out .*)", printed.output)  # whole, as it is printed
    submitted = invoke(*(honest[0] if word == "RUN" else word for word in shlex.split(command)))
    assert submitted.exit_code == 0, submitted.output
    git("add", "protocols")
    git("commit", "--quiet", "--message", "protocol")
    git("add", "--all")
    git("commit", "--quiet", "--message", "run")
    changed = tmp_path / "changed"
    changed.write_text(git("diff", "--no-renames", "--name-status", "HEAD~1", "HEAD"))
    checked = invoke("store", "check", store, "--changed", changed)
    assert (checked.exit_code, "everything holds (1 run)" in checked.output) == (0, True), checked.output


def test_the_commands_of_the_page_make_a_store(
    honest: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in an empty folder, with nothing between them, as a reader types them.

    Left out are the wheel, which takes a build, the line for folders, and the last, which is any pack.
    """
    monkeypatch.chdir(tmp_path)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "me")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "me@example.org")
    lines = PAGE.read_text(encoding="utf-8").split("\n\n")[2].splitlines()
    left_out = [line for line in lines if "pip wheel" in line or "SHA12" in line]
    assert (len(lines), len(left_out)) == (8, 2)
    assert "pip wheel --no-deps ./" in left_out[0], "pip takes a bare name for a package of its index"
    for line in [line for line in lines if line not in left_out]:
        typed = line.partition("  #")[0].strip().replace("RUN", str(honest[0]))
        if typed.startswith("git "):
            subprocess.run(typed, shell=True, check=True, capture_output=True)
        else:
            done = invoke(*shlex.split(typed)[1:])
            assert done.exit_code == 0, done.output
    assert "everything holds (1 run)" in done.output


def test_a_store_of_ones_own_takes_its_first_protocol_with_a_run(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """`submit --new-protocol` adds it once; a run that is refused leaves none."""
    store = tmp_path / "store"
    init(store)
    words = (
        "submit",
        honest[0],
        "--licence",
        "CC0-1.0",
        "--tuned-on",
        "nothing",
        "--runs",
        1,
        "--out",
        store,
    )
    without = invoke(*words, "--who", "me")
    assert without.exit_code == 2
    assert "--new-protocol" in without.stderr
    first = invoke(*words, "--who", "me", "--new-protocol")
    assert first.exit_code == 0, first.output
    assert "the store's new protocol: " in first.output
    assert "commit it first, by itself" in first.output
    assert "--data" not in first.output
    again = invoke(*words, "--who", "you", "--new-protocol")
    assert "new protocol" not in again.stdout
    assert all(verdict.holds for verdict in check_store(store, known))
    init(tmp_path / "other")
    (hurt := Path(shutil.copytree(honest[0], tmp_path / "hurt"))).joinpath("config.toml").write_text("")
    refused = invoke("submit", hurt, *words[2:-1], tmp_path / "other", "--who", "me", "--new-protocol")
    assert refused.exit_code == 2
    assert [path.name for path in (tmp_path / "other" / "protocols").iterdir()] == [".gitkeep"]
    # refused after its protocol was written
    edited = Path(shutil.copytree(honest[0], tmp_path / "edited"))
    predictions = next(edited.glob("predictions/*"))
    predictions.write_bytes(predictions.read_bytes()[:-1] + b"x")
    refused = invoke("submit", edited, *words[2:-1], tmp_path / "other", "--who", "me", "--new-protocol")
    assert refused.exit_code == 2
    assert [path.name for path in (tmp_path / "other" / "protocols").iterdir()] == [".gitkeep"]


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("submit RUN --out STORE", "name its data: lw2g store protocol STORE RUN --data NAME, then submit"),
        (
            "submit RUN --out STORE --new-protocol",
            "name them: lw2g store protocol STORE RUN --data NAME, then submit",
        ),
        ("store protocol STORE RUN", "name them: --data NAME"),
        ("store protocol STORE RUN --data NAME", "use small letters, digits, - and ."),
    ],
)
def test_a_protocol_of_data_without_a_name_is_refused_before_it_is_written(
    honest: tuple[Path, Path, Path], tmp_path: Path, command: str, remedy: str
) -> None:
    """Of a folder it would be called like that of everybody's: the command that names the data is told."""

    def placed(text: str) -> str:
        return text.replace("STORE", str(tmp_path / "store")).replace("RUN", str(run))

    init(tmp_path / "store")
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    record = unseal_json(run / "record.json")
    record["config"]["benchmark"] = {"name": "folder", "root": "here"}
    record["record_hash"] = record_hash(record)
    (run / "record.json").write_bytes(seal_json(record))
    words = shlex.split(placed(command))
    if words[0] == "submit":
        words += ["--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", "1"]
    refused = invoke(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.endswith(f"; {placed(remedy)}\n")
    assert len(refused.stderr.splitlines()) == 1
    assert [path.name for path in (tmp_path / "store" / "protocols").iterdir()] == [".gitkeep"]


def test_a_plugin_from_a_folder_is_told_of(
    honest: tuple[Path, Path, Path],
    known: Catalogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Others cannot get it, unless the submitter says where; of lw2g nothing is said."""
    theirs = tmp_path / "site" / "theirs_here-1.0.dist-info"
    theirs.mkdir(parents=True)
    (theirs / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs-here\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    key = ("baseline", "ranpac")
    origin = Origin(plugin="theirs", distribution="theirs-here", version="1.0")
    entries = {**known.entries, key: attrs.evolve(known.entries[key], origin=origin)}
    catalogue = attrs.evolve(known, entries=entries)
    elsewhere = "https://example.com/me/theirs@" + 40 * "0"
    for number, (address, plugin, told) in enumerate(
        (
            ("", "", False),
            ("https://example.com/theirs.git", "", False),
            ("file:///home/me/theirs", "", True),
            ("file:///home/me/theirs", elsewhere, False),
        )
    ):
        if address:
            (theirs / "direct_url.json").write_text(json.dumps({"url": address}))
        caplog.clear()
        submit(honest[0], catalogue, tmp_path / str(number), {**TOLD, "plugin": plugin})
        said = [line for line in caplog.messages if "others cannot get it" in line]
        assert [line.split(" is ")[0] for line in said] == ["note: theirs-here 1.0"] * told


def test_the_command_asks_for_what_is_missing_and_tells_what_it_packed(
    honest: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """One line with all missing options; then the files, their sizes, and that nothing was uploaded."""
    run = honest[0]
    result = invoke("submit", run, "--who", "me", "--out", tmp_path / "out")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--licence, --tuned-on, --runs are missing" in result.stderr
    words = ["submit", run, "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", 1]
    result = invoke(*words, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "nothing was uploaded" in result.output
    assert result.stderr == f"note: '{tmp_path / 'out'}' is no store: the pack lies there alone\n"
    assert len(list((tmp_path / "out").glob("*/*"))) == 4
    assert "is damaged" not in invoke("verify", next((tmp_path / "out").iterdir())).output
    init(tmp_path / "empty")
    result = invoke(*words, "--out", tmp_path / "empty")
    assert f"a maintainer adds it: lw2g store protocol {tmp_path / 'empty'} {run}\n" in result.stderr
    flipped = Path(shutil.copytree(run, tmp_path / "flipped"))
    (flipped / "samples.json").write_text("[]")
    words[1] = flipped
    assert "samples.json: does not match its checksum" in invoke(*words, "--out", tmp_path / "o").stderr


ADDRESS = "https://example.org/me/method@" + "0a" * 20


@pytest.mark.parametrize(
    ("key", "value", "wrong", "said"),
    [
        (
            "plugin",
            ADDRESS,
            (ADDRESS[:-1], ADDRESS.replace("https", "http"), "https://example.org/a b@" + "0" * 40),
            "is not an address and a commit; write https://",
        ),
        (
            "replaces",
            "0a" * 32,
            ("0a" * 31, "runs/first"),
            "is not the checksum of a record; write the 64 digits",
        ),
    ],
)
def test_a_pack_tells_a_plugin_on_no_index_and_the_record_it_replaces(
    honest: tuple[Path, Path, Path],
    store: Path,
    known: Catalogue,
    tmp_path: Path,
    key: str,
    value: str,
    wrong: tuple[str, ...],
    said: str,
) -> None:
    """By address and commit, and by checksum; else it is refused in one line, here and in a store."""
    shutil.rmtree(only(store))
    submit(honest[0], known, store, TOLD | {key: value})
    assert json.loads((only(store) / "submission.json").read_text())[key] == value
    (verdict,) = check_store(store, known)
    assert verdict.holds
    assert verdict.text.endswith(f"; plugin {value}") == (key == "plugin")
    words = ["submit", honest[0], "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", 1]
    for text in wrong:
        refused = invoke(*words, "--out", tmp_path / "out", f"--{key}", text)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
        assert said in refused.stderr
    assert not (tmp_path / "out").exists()
    forge(only(store), lambda forged: forged.submission.update({key: wrong[-1]}))
    assert any(key in text for text in failed(store, known))


def test_addresses_are_those_of_public_places(honest: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """What leads elsewhere than it says is refused in one line, and a store's schema says the same."""
    commit = "@" + "0a" * 20
    words = ["submit", honest[0], "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", 1]
    words += ["--out", tmp_path / "out"]
    refused = {
        "--plugin": (
            *("https://x/../../y", "https://a.org/../y", "https://a.org/b/.", "https://-a.org/y"),
            *(f"https://{host}/y" for host in ("10.0.0.1", "0x7f.1", "a.local", "a.b.internal")),
        ),
        "--paper": (
            "javascript:alert(1)",
            "https://x/y",
            "https://a.org/../y",
            "https://a.org/%2E./y",
            "a b",
        ),
    }
    for option, addresses in refused.items():
        for address in addresses:
            said = invoke(*words, option, address + (commit if option == "--plugin" else ""))
            assert (said.exit_code, len(said.stderr.splitlines())) == (2, 1)
            assert said.stderr.startswith(f"error: {option}: ")
    assert not (tmp_path / "out").exists()
    told = ("--plugin", f"https://a.org/me/.m-1{commit}", "--paper", "https://a.org/forum?id=a_b&c=../d#e")
    assert invoke(*words, *told).exit_code == 0
    init(tmp_path / "store")
    schema = json.loads((tmp_path / "store" / "schema" / "submission.json").read_text(encoding="utf-8"))
    for key, pattern in (("plugin", PLUGIN), ("paper", PAPER), ("replaces", SEAL)):
        assert schema["properties"][key]["pattern"] == f"^({pattern})?$"
