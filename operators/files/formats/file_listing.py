"""Finds the input files of a source: files, directories and patterns, in a fixed order."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from engine.elements.errors import ConfigurationError
from state_backends.files import FileSystem


def is_hidden(name: str) -> bool:
    """Whether readers skip files and directories of this name (Flink: ``DefaultFileFilter``)."""
    return name.startswith((".", "_"))


def visible_files(fs: FileSystem, directory: str) -> Iterator[tuple[str, str]]:
    """The sub-directory, and the path, of each file below a directory that readers see, sorted by path."""
    prefix = directory.rstrip("/") + "/"
    for path in fs.walk_files(directory):
        relative = path.removeprefix(prefix)
        if not any(map(is_hidden, relative.split("/"))):
            yield posixpath.dirname(relative), path


def checked_paths(paths: str | Sequence[str]) -> tuple[str, ...]:
    """The paths of a source. Raises ``ConfigurationError`` unless there is at least one, and all are texts."""
    is_one = isinstance(paths, str) or not isinstance(paths, Iterable)
    several: tuple[object, ...] = (paths,) if is_one else tuple(paths)
    wrong = [path for path in several if not isinstance(path, str) or not path]
    if wrong:
        raise ConfigurationError(f"paths of a FileSource are texts such as 'data/*.csv', and {wrong[0]!r} is none")
    if not several:
        raise ConfigurationError("a FileSource needs at least one path")
    return tuple(map(str, several))


def stands_for(paths: Sequence[str], file: str) -> bool:
    """Whether ``file``, by its name, is one that :func:`list_files` could find through one of ``paths``."""
    return any(_leads_to(path.split("/"), file.split("/")) for path in paths)


def _leads_to(path: list[str], file: list[str]) -> bool:
    given, found = ([one for one in parts if one not in ("", ".")] for parts in (path, file))
    return (
        # Absolute paths have an empty first part.
        (path[0] == "") == (file[0] == "")
        and len(found) >= len(given)
        and ".." not in found[len(given) :]
        and all(
            name == part or (name != ".." and fnmatchcase(name, part)) for part, name in zip(given, found, strict=False)
        )
    )


def list_files(fs: FileSystem, paths: Sequence[str], *, may_be_missing: bool = False) -> list[str]:
    """The files that ``paths`` stand for: each path expanded in sorted order, one after the other.

    Raises ``ConfigurationError`` for a path that stands for no file, unless that ``may_be_missing``, and for a file
    that is named twice.
    """
    found: dict[str, tuple[str, str]] = {}
    for path in paths:
        files = list(_expand(fs, path))
        if not files and not may_be_missing:
            raise ConfigurationError(
                f"no input file at {path!r}: there is no such file, or no visible file in that directory or of that "
                "pattern (names starting with '.' or '_' are hidden)"
            )
        for file in files:
            place = posixpath.normpath(file)
            if place in found:
                raise ConfigurationError(
                    f"file {file!r} would be read twice, through {found[place][1]!r} and {path!r}; name it once"
                )
            found[place] = file, path
    return [file for file, _ in found.values()]


def _expand(fs: FileSystem, path: str) -> Iterator[str]:
    if fs.is_dir(path):
        yield from _below(fs, path)
    elif fs.exists(path):
        yield path
    elif any(sign in path for sign in "*?["):
        parts = path.split("/")
        for match in _matches(fs, "/" if parts[0] == "" else "", [part for part in parts if part]):
            if fs.is_dir(match):
                yield from _below(fs, match)
            else:
                yield match


def _below(fs: FileSystem, directory: str) -> Iterator[str]:
    for name in fs.list_dir(directory):
        if not is_hidden(name):
            child = posixpath.join(directory, name)
            if fs.is_dir(child):
                yield from _below(fs, child)
            else:
                yield child


def _matches(fs: FileSystem, base: str, parts: list[str]) -> Iterator[str]:
    part, rest = parts[0], parts[1:]
    for name in _names(fs, base, part):
        path = posixpath.join(base, name)
        if not rest:
            yield path
        elif fs.is_dir(path):
            yield from _matches(fs, path, rest)


def _names(fs: FileSystem, base: str, part: str) -> list[str]:
    if not any(sign in part for sign in "*?["):
        return [part] if fs.exists(posixpath.join(base, part)) else []
    if base and not fs.is_dir(base):
        return []
    # A pattern finds hidden names only when it names them itself.
    return [
        name
        for name in fs.list_dir(base or ".")
        if fnmatchcase(name, part) and (is_hidden(part) or not is_hidden(name))
    ]
