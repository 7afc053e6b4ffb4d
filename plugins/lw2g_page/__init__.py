"""Reports of runs as tables and as a page with figures."""
