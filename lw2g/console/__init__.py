"""What commands and functions print: tables, numbers, the progress of a run."""
