"""Run the notebooks of the documentation and keep what their cells show (needs the extra ``docs``).

    python scripts/run_notebooks.py [NAME.ipynb ...]

A notebook keeps the checksum of the code that made its outputs, so that a test sees when one was changed and
not run again. Progress, and notes on the error stream, are left out.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
CHECKSUM = "code_sha256"


def notebooks() -> list[Path]:
    """Return the notebooks of the documentation."""
    return sorted(DOCS.glob("*.ipynb"))


def code_cells(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def code_checksum(content: dict[str, Any]) -> str:
    """Return the checksum of a notebook's code."""
    code = ["".join(cell["source"]) for cell in code_cells(content)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def passing(output: dict[str, Any]) -> bool:
    """Return whether an output is progress, which is displayed and overwritten, or a note."""
    return output["output_type"] == "display_data" or output.get("name") == "stderr"


def run(path: Path) -> None:
    """Run a notebook in its folder and write it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(DOCS)}}).execute()
    content = json.loads(nbformat.writes(notebook))
    content["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        CHECKSUM: code_checksum(content),
    }
    for cell in code_cells(content):
        cell["metadata"] = {}  # times
        cell["outputs"] = [one for one in cell["outputs"] if not passing(one)]
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):  # Pillow gives each picture in two formats
                output["data"].pop("image/jpeg", None)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Run the notebooks that are named, or all."""
    for path in [DOCS / name for name in sys.argv[1:]] or notebooks():
        print(path.name)
        run(path)


if __name__ == "__main__":
    main()
