"""Published data sets brought to this machine: downloads, archives, routes."""
