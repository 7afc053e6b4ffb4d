"""Published data sets: fetched, examined, and their features stored."""
