"""Directories as users type them: paths on this machine, or URLs that fsspec can reach."""

from __future__ import annotations

import os

from engine.elements.errors import ConfigurationError
from state_backends.base import StateArgumentError
from state_backends.files import FileSystem, LocalFileSystem, file_system_for


def is_url(text: str) -> bool:
    """Whether it is a URL and not a path on this machine."""
    return "://" in text


def absolute(text: str) -> str:
    """The same place in a form that does not depend on the working directory."""
    return text.rstrip("/") if is_url(text) else os.path.abspath(text)


def place(text: str) -> tuple[FileSystem, str]:
    """The file system of a directory, and its absolute path there. Raises :class:`ConfigurationError` when there is no
    such kind of URL, or a package for it is missing."""
    if not is_url(text):
        return LocalFileSystem(), os.path.abspath(text)
    try:
        return file_system_for(text)
    except StateArgumentError as error:
        raise ConfigurationError(str(error)) from error
