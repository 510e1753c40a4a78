"""python -m loopwatch: the command line."""

from loopwatch.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
