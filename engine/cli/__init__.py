"""The command line: ``weir run``, ``weir resume``, ``weir inspect``.

``main`` is the command group. It is loaded when first needed, so importing this package costs nothing. And nothing of
the project is imported before start-up has checked that it *is* the project (see ``start_up``).

Rules of the command line:

* standard output carries data only (``--json``, ``--explain``, ``inspect``); everything for people goes to standard
  error;
* the first line prints seed, versions and mode, the last line the verdict and the next command to type;
* durations and instants are virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.cli.group import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.cli.group import main

    globals()["main"] = main
    return main
