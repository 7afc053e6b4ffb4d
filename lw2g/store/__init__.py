"""The store of results: packs of runs, which anybody can check; packing and badges alone need torch."""
