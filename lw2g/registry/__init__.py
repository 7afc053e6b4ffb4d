"""Discovery of plugins: hook specifications, the marker for plugins, and the catalogue of components."""
