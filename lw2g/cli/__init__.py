"""The command line parses arguments and prints results; the other layers do the work."""

from __future__ import annotations

import sys

from lw2g.ground.platforms import why_not_here

if _reason := why_not_here():  # before anything is imported that this system lacks
    print(f"error: {_reason}", file=sys.stderr)
    raise SystemExit(2)
