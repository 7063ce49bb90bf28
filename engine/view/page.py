"""One self-contained page from plain data: style, script and data are inside it, and it fetches nothing.

A policy in the page forbids every connection, and allows only the style and the script that are in it, by their digest.
Data are JSON in a block that is never run; ``<`` is escaped there, so that no text of a job can end the block. Above
1 MB the block is compressed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.view.page_data import PAGE_FORMAT, PAGE_VERSION
from state_backends.files import LocalFileSystem

_LARGE_BYTES = 1_000_000
_SCRIPTS = ("base", "run", "diagram", "graph", "tables", "curves", "files", "page")
"""In this order: each uses the names of those before it. They are one script, for which the policy has one digest."""
_SLOT = re.compile(r"@@([A-Z]+)@@")


def page(title: str, data: Mapping[str, Any]) -> str:
    """The page as text. ``data``: see ``assets/run.js`` and ``assets/page.js``."""
    script = _script()
    form, block = _block({"format": PAGE_FORMAT, "version": PAGE_VERSION, **data})
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src 'unsafe-inline';"
        " img-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    styles = {"STYLE": _asset("page.css"), "PICTURES": _asset("pictures.css")}
    slots = {"CSP": policy, "TITLE": escape(title), **styles, "SCRIPT": script, "FORM": form, "DATA": block}
    return _SLOT.sub(lambda found: slots[found[1]], _asset("page.html"))


def framed(text: str, title: str, height: int) -> str:
    """A page for the cell of a notebook: in a frame of its own, that holds its whole text. ``height``: in pixels."""
    return f'<iframe srcdoc="{escape(text)}" width="100%" height="{height}" title="{escape(title)}"></iframe>'


def check_place(path: str) -> None:
    """Raise :class:`ConfigurationError`, before anything has run, when no file can be made at ``path``."""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory) or os.path.isdir(path):
        raise ConfigurationError(
            f"--html {path}: {'it is a directory' if os.path.isdir(path) else f'there is no directory {directory}'}\n"
            "  fix: name a file in a directory that exists"
        )


def write_page(path: str, text: str) -> None:
    """Write the page to a file. Raises :class:`ConfigurationError` when that is impossible."""
    try:
        with LocalFileSystem().open_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigurationError(
            f"--html {path}: cannot be written ({error.strerror})\n  fix: name a file in a directory that exists"
        ) from error


def _block(data: Mapping[str, Any]) -> tuple[str, str]:
    text = json.dumps(data, separators=(",", ":"))
    if len(text) <= _LARGE_BYTES:
        return "plain", text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    # No time in the header: the same run gives the same page.
    return "gzip", base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _asset(name: str) -> str:
    return (files("engine.view") / "assets" / name).read_text(encoding="utf-8")
