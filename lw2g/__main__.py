"""``python -m lw2g`` is ``lw2g``."""

from __future__ import annotations

from lw2g.cli.main import main

if __name__ == "__main__":
    main(prog_name="lw2g")
