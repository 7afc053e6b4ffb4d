"""Run mutation tests: ``python scripts/mutate.py [MUTANT...]``, or ``tox -e mutation``. Hours on two cores.

The core and the plugins stand in two folders, but are imported as packages of one level; mutmut names mutants
by their path. So it works on a copy in which they stand side by side.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("lw2g", "tests", "docs", "scripts", "experiments", "README.md", "pyproject.toml")


def stage(target: Path) -> None:
    """Copy what mutants and tests need, plugins beside the core."""
    forget = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=forget)
        else:
            shutil.copy(source, target / name)
    shutil.copytree(ROOT / "plugins", target, ignore=forget, dirs_exist_ok=True)


def main(arguments: list[str]) -> int:
    """Run mutmut on the copy, print what survived, and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        code = subprocess.run(["mutmut", "run", *arguments], cwd=folder, check=False).returncode
        left = subprocess.run(["mutmut", "results"], cwd=folder, check=False, capture_output=True, text=True)
        for line in left.stdout.splitlines():
            name, _, what = line.strip().rpartition(": ")
            if what in ("survived", "no tests", "timeout", "suspicious"):
                shown = subprocess.run(
                    ["mutmut", "show", name], cwd=folder, check=False, capture_output=True, text=True
                )
                print(f"# {what}: {name}\n{shown.stdout}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
