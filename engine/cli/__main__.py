"""``python -m engine.cli``: the command ``weir`` where it is not installed as a script."""

from __future__ import annotations

from engine.cli import main

if __name__ == "__main__":
    main(prog_name="weir")
