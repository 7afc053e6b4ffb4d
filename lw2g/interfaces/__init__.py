"""The typed contracts between the framework and its components; import from the defining module."""
