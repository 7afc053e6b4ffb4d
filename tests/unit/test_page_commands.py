"""lw2g takes every command, file and program on a page; test_plugin_page.py runs those of docs/plugins.md."""

from __future__ import annotations

import argparse
import json
import re
import runpy
import shlex
import sys
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import click
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.cli.shared_options import typed_experiment
from lw2g.config.resolve import resolve
from lw2g.errors import Lw2gError
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.sweeps.grid import read_executor, read_grid
from lw2g.sweeps.needs import without_missing_files
from lw2g.sweeps.sweep_engine import require_valid

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("README.md", "docs/*.md", "docs/howto/*.md", "experiments/**/*.md", "benchmarks/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "plugins.md"
}

if not PAGES:
    pytest.skip("needs the source tree", allow_module_level=True)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the fenced and indented blocks of a page, with their language (empty: none named)."""
    fence = r"^```(\w*)\n(.*?)^```"
    fenced = re.findall(fence, text, flags=re.S | re.M)
    rest = re.sub(fence, "", text, flags=re.S | re.M)
    indented = re.findall(r"(?:^(?:> )? {4}.*\n|^\n(?= {4}))+", rest, flags=re.M)
    return fenced + [("", textwrap.dedent(re.sub(r"^> ", "", one, flags=re.M))) for one in indented]


def commands(text: str) -> list[list[str]]:
    """Return the words of each `lw2g` command in the blocks of a page."""
    lines = [
        line
        for language, code in blocks(text)
        if language in ("", "sh")
        for line in code.replace("\\\n", "").splitlines()
    ]
    parts = [part.strip() for line in lines for part in line.split(" && ")]
    return [shlex.split(part, comments=True)[1:] for part in parts if part.startswith("lw2g ")]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the command's name and its values, as click reads them."""
    command: click.Command = main
    context = main.make_context("lw2g", list(words))
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(command.name, rest, parent=context)
    return str(command.name), context.params


def compose(name: str, values: dict[str, Any], catalogue: Catalogue) -> None:
    """Resolve the configuration that a command asks for."""
    if name in ("run", "config"):
        file = values["file"]
        values["file"] = ROOT / file if file is not None and (ROOT / file).is_file() else None
        values["weights"] = values["weights"] and Path(__file__)  # any file that exists
        typed_experiment(values, catalogue)
    elif name in ("fork", "continue"):
        kinds = {kind: values[kind] for kind in ("policy", "benchmark") if kind in values}
        resolve(catalogue, overrides=dict(values["settings"]), **kinds)
    elif name == "grid" and (ROOT / values["grid"]).is_file():
        require_valid(read_grid(ROOT / values["grid"], dict(values["settings"])), catalogue)


# -- commands and the packs of their rows ----------------------------------------------------------------

CLAIMS = ("README.md", "docs/use.md", "docs/frozen.md", "docs/start.md")
"""The pages that print a command for a row of a table."""
ROWS = {
    "--recommended": "simple-cil_auto",
    "--trained": "slca-plus-plus_always_auto_first-1",
    "--baseline slca-plus-plus --set baseline.head=lda": "slca-plus-plus_always_lda_gated_expert",
    "--baseline ranpac --set baseline.penalty=running": "ranpac_always_running_joined",
    "--baseline ranpac --set baseline.adapt=none": "ranpac",
    "--baseline simple-cil --set baseline.head=lda": "simple-cil_lda",
    "--baseline dual-prompt --policy one": "dual-prompt_one_lda_key-cosine",
}
"""What a command on images has of its row, and the method of its packs in ``scripts/stream_tables.py``."""
ROWLESS = {"--baseline hide-prompt --policy always --retrieval lda": "the page claims no number of it"}
"""Commands on images without a row, and why."""
APART = {
    "benchmark.root": "the reader's own images",
    "benchmark.increment": "a size of the stream",
    "benchmark.train_per_class": "a size of the stream",
    "benchmark.test_per_class": "a size of the stream",
    "benchmark.test_share": "a size of the reader's own images",
    "benchmark.uneven": "a size of the stream",
    "run.seed": "the number of the order",
    "run.precision": "bf16 in packs, which auto takes where the processor has it; docs/use.md says so",
    "run.workers": "gives the same bits",
    "run.device": "what a pack ran on stands in its submission",
    "run.evaluate": "when to look changes nothing that is learned",
    "backbone.name": "vit-tiny is that network of timm; its other options are compared below",
    "backbone.model": "see backbone.name",
    "backbone.mean": "see backbone.name",
    "backbone.std": "see backbone.name",
    "backbone.image_size": "see backbone.name",
    "backbone.weights": "see backbone.name",
}
"""The options in which a command and the packs of its row may differ, and why that is no other row."""
UNTRAINED = ("simple-cil_auto", "simple-cil_lda", "ranpac")
UNREAD = {"benchmark.train_transform": "read by no method that trains nothing (single_set/test_untrained.py)"}
"""The same for rows that train nothing."""
BACKBONE = {"model": "vit_tiny_patch16_224", "mean": [0.5] * 3, "std": [0.5] * 3, "image_size": 224}
"""What packs say of their backbone, and `vit-tiny` stands for."""


def flat(tables: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted keys; what is not set is None, as in a record."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{key}.")
        else:
            found[before + key] = None if value == "none" else value
    return found


def options_of(words: list[str], page: str, catalogue: Catalogue, place: Path) -> dict[str, Any]:
    """Return all options of the run that a command starts, with the file that its page shows."""
    _, values = parsed(words)
    if values["file"] is not None:
        (content,) = [code for language, code in blocks(PAGES[page]) if language == "toml"]
        values["file"] = place / "conditions.toml"
        values["file"].write_text(content, encoding="utf-8")
    values["weights"] = None
    return flat(tomllib.loads(typed_experiment(values, catalogue).to_toml()))


@pytest.fixture(scope="module")
def packs() -> dict[str, list[dict[str, Any]]]:
    """The options of all packs at 224 px by method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        method_of = runpy.run_path(str(ROOT / "scripts" / "stream_tables.py"))["_method"]
    found: dict[str, list[dict[str, Any]]] = {}
    for file in (ROOT / "experiments" / "store" / "runs" / "folder").rglob("*.224*@*/*/*/record.json"):
        record, submission = (
            json.loads(path.read_text(encoding="utf-8")) for path in (file, file.with_name("submission.json"))
        )
        method = method_of(SimpleNamespace(record=record, submission=submission))
        found.setdefault(method, []).append(flat(record["config"]))
    return found


@pytest.mark.parametrize("page", CLAIMS)
def test_a_command_has_the_options_of_the_packs_of_its_row(
    page: str, catalogue: Catalogue, packs: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Each option that a pack knows is the same, but for those of the table with their reason."""
    for words in commands(PAGES[page]):
        if words[0] != "run":
            continue
        options = options_of(words, page, catalogue, tmp_path)
        if options["benchmark.name"] != "folder":
            continue  # drawings: a first run, which makes no row
        told = shlex.join(words)
        if any(known in told for known in ROWLESS):
            continue
        (method,) = [row for known, row in ROWS.items() if known in told]
        may_differ = APART | (UNREAD if method in UNTRAINED else {})
        for pack in packs[method]:
            # an option that is newer than the pack, or gone, has no other side
            common = (options.keys() & pack.keys()) - may_differ.keys()
            differ = {key: (options[key], pack[key]) for key in common if options[key] != pack[key]}
            assert not differ, f"{page}: lw2g {told} against a pack of {method}"
            assert {key: pack[f"backbone.{key}"] for key in BACKBONE} == BACKBONE


BUDGET = ("baseline.epochs", "baseline.lr", "baseline.batch_size")
"""What a preset decides of how long a method trains."""


def test_rows_train_as_long_as_presets_unless_the_page_says_so(
    catalogue: Catalogue, packs: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Rows without a command on the page, too: its conditions speak of all tables."""
    page = "docs/use.md"
    other = set()
    for pack in [own[0] for own in packs.values()]:
        baseline = pack["baseline.name"]
        preset = options_of(["run", "conditions.toml", "--baseline", baseline], page, catalogue, tmp_path)
        for key in BUDGET:
            if key in preset.keys() & pack.keys() and preset[key] != pack[key]:
                other.add(f"(of `{baseline}` {preset[key]}: add `--set {key}={pack[key]}`)")
    said = re.findall(r"\(of `[\w-]+` \d+: add `--set baseline\.[^`]+`\)", PAGES[page])
    assert sorted(other) == sorted({*said})


def test_vit_tiny_is_the_network_of_the_packs(catalogue: Catalogue) -> None:
    """Its record names that network of timm, of which packs have the size, with their normalisation."""
    preset = catalogue.get("backbone", "vit-tiny").build.fixed["preset"]
    known = {"model": preset.timm_name.partition(".")[0], "mean": [*preset.mean], "std": [*preset.std]}
    assert {**known, "image_size": preset.image_size or 224} == BACKBONE


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Sixteen images of two classes, no two alike."""
    for split, first in (("train", 0), ("test", 9)):
        for name, shade in (("dark", 40), ("light", 200)):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(first, first + 4):
                Image.new("RGB", (32, 32), (shade + number,) * 3).save(folder / f"{number}.png")
    return tmp_path / "photos"


def test_a_run_of_a_page_records_the_options_that_were_compared(
    photos: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    """The frozen answer of docs/use.md on a small folder: its record has what the test above resolves."""
    (words,) = [own for own in commands(PAGES["docs/use.md"]) if "--recommended" in own]
    small = f"--set benchmark.root={photos} --set benchmark.increment=1 --backbone micro --device cpu"
    options = options_of([*words, *small.split()], "docs/use.md", catalogue, tmp_path)
    words[1] = str(tmp_path / "conditions.toml")
    ended = CliRunner().invoke(main, [*words, *small.split(), "--out", str(tmp_path / "run")])
    assert ended.exit_code == 0, ended.output
    recorded = flat(json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["config"])
    common = (options.keys() & recorded.keys()) - APART.keys()
    assert {key: options[key] for key in common} == {key: recorded[key] for key in common}
    assert recorded["benchmark.test_resize"] == "squash"


def test_the_first_command_reads_the_middle_of_an_image(photos: Path, tmp_path: Path) -> None:
    """`lw2g start` differs from the rows in that alone, and the pages say so; it never augments."""
    model, _ = lw2g.start(photos / "train", tmp_path / "model")
    wide = torch.zeros(3, 32, 64, dtype=torch.uint8)
    wide[:, :, :12] = 255  # beyond the middle, so that nothing of it is read
    assert torch.equal(model.transform(wide), model.transform(torch.zeros_like(wide)))
    for page in ("README.md", "docs/frozen.md"):
        assert "the middle of each image" in " ".join(PAGES[page].split())


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """All installed components."""
    return load_catalogue()


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if commands(text)])
def test_every_command_of_a_page_is_taken(page: str, catalogue: Catalogue) -> None:
    """Options exist, and names, keys and values compose; nothing runs."""
    for words in commands(PAGES[page]):
        try:
            compose(*parsed(words), catalogue)
        except (click.ClickException, Lw2gError) as error:
            pytest.fail(f"lw2g {shlex.join(words)}: {error}")


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```toml" in text])
def test_every_file_of_a_page_is_read(page: str, catalogue: Catalogue, tmp_path: Path) -> None:
    """A TOML block is a configuration or a grid that resolves."""
    for language, code in blocks(PAGES[page]):
        if language == "toml":
            content = tomllib.loads(code)
            if content.keys() & {"axes", "executor"}:
                (tmp_path / "grid.toml").write_text(code, encoding="utf-8")
                if "axes" in content:  # else the part of a grid that says where it runs
                    cells = [without_missing_files(cell) for cell in read_grid(tmp_path / "grid.toml")]
                    require_valid(cells, catalogue)
                read_executor(tmp_path / "grid.toml")
            else:
                resolve(catalogue, file=content)


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "import lw2g\n" in text])
def test_every_program_of_a_page_asks_for_what_exists(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that imports lw2g calls what exists, and its configuration composes; nothing trains."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.jpg")
    (tmp_path / "boxes.csv").write_text("path,x,y,w,h\na.jpg,1,1,4,4\n")
    record = {"metrics": {"faa": 50.0}}
    monkeypatch.setattr("lw2g.lifecycle.runner.start", MagicMock(return_value=record))
    for name in set(lw2g.__all__) - {"run", "__version__"}:
        monkeypatch.setattr(lw2g, name, MagicMock())
    model = MagicMock()
    model.learn.return_value = (model, {})
    monkeypatch.setattr(lw2g, "start", MagicMock(return_value=(model, {})))
    for _, code in blocks(PAGES[page]):
        if "fastapi" in code:  # is served whole by tests/integration/test_service.py
            pytest.importorskip("fastapi", reason="needs the extra service")
        if "import lw2g\n" in code and ">>>" not in code:  # examples of docstrings are run as such
            exec(compile(code, page, "exec"), {})


def script_commands() -> dict[str, list[list[str]]]:
    """Return by script the arguments with which pages call it, in blocks and within sentences."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for text in PAGES.values():
        lines = [line for _, code in blocks(text) for line in code.replace("\\\n", "").splitlines()]
        within = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
        for line in lines + within:
            if line.startswith(("python scripts/", "python experiments/")):
                _, script, *words = shlex.split(line, comments=True)
                found.setdefault(script, {})[tuple(words)] = None
    return {script: [list(words) for words in calls] for script, calls in found.items()}


class ReadError(Exception):
    """The arguments of a script were read."""


@pytest.mark.parametrize(("script", "calls"), script_commands().items())
def test_every_script_of_a_page_takes_its_arguments(
    script: str, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads them before it does anything; nothing runs. A script without arguments reads none."""
    read = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any) -> None:
        read(parser, *given)
        raise ReadError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "path", [str((ROOT / script).parent), *sys.path])
    before = set(sys.modules)
    try:
        for words in calls:
            monkeypatch.setattr(sys, "argv", [script, *words])
            if "parse_args" in (ROOT / script).read_text(encoding="utf-8"):
                with pytest.raises(ReadError):
                    runpy.run_path(str(ROOT / script), run_name="__main__")
            else:
                assert words == []
    finally:
        for name in set(sys.modules) - before:  # studies have modules of one name
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "experiments")):
                del sys.modules[name]


@pytest.mark.slow
def test_the_page_on_reports_shows_lines_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command above the first block prints all its lines, bars and header too, in this order."""
    page = PAGES["docs/howto/report.md"]
    shown = next(code for _, code in blocks(page) if code.startswith("| row")).splitlines()
    command = next(line for line in page.splitlines() if "lw2g report experiments/store" in line)
    words = shlex.split(command.split("`")[1])[1:]
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    printed = iter(done.output.splitlines())
    for line in shown:
        assert line == "..." or line in printed, line
