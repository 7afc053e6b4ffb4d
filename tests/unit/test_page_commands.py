"""lw2g takes every command, file and program on a page; test_plugin_page.py runs those of docs/plugins.md."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
import pytest
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.cli.shared_options import typed_experiment
from lw2g.config.resolve import resolve
from lw2g.errors import Lw2gError
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.sweeps.grid import read_executor, read_grid
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
                require_valid(read_grid(tmp_path / "grid.toml"), catalogue)
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
