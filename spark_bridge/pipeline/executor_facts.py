"""An executor tells what it is. This module travels by value and imports no other of Weir: an executor without Weir can
run it, too.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

PLAIN = ("host", "python", "executable", "weir", "imports", "job")


def facts_of(files: Mapping[str, str], job: bytes, needs: Sequence[str]) -> dict[str, Any]:
    """The facts about this process.

    ``host``, ``python``, ``executable``  where it runs;
    ``weir``     the version of Weir, ``None`` when there is none;
    ``imports``  the error of an import that the work needs, ``None`` when all succeed;
    ``files``    by path of a file that the driver has written: the problem with it, for those that have one;
    ``job``      the error with which the pickled job cannot be loaded, ``None`` when it can.
    """
    found: dict[str, Any] = dict.fromkeys(PLAIN)
    found |= {"host": socket.gethostname(), "python": platform.python_version(), "executable": sys.executable}
    with suppress(ImportError):
        found["weir"] = getattr(import_module("engine"), "__version__", None)
    if found["weir"] is not None:
        try:
            for module in needs:
                import_module(module)
        except ImportError as error:
            found["imports"] = str(error)
        else:
            try:
                pickle.loads(job)
            except Exception as error:
                found["job"] = f"{type(error).__name__}: {error}"
    found["files"] = {path: problem for path, text in files.items() if (problem := _problem(path, text)) is not None}
    return found


def _problem(path: str, text: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                return "another file has this path there"
    except OSError as error:
        return error.strerror or str(error)
    return None if os.access(os.path.dirname(path), os.W_OK) else "its directory cannot be written there"
