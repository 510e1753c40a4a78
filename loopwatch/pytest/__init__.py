"""The pytest plugin, where it was asked for: pytest_loopwatch.py, beside this package, is what pytest finds."""
