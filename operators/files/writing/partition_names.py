"""Names of the directories of partitions: writes and reads them (Flink: ``PartitionPathUtils``; Hive's layout).

* A partition is a directory per column, ``day=2013-01-01/hour=07``.
* Control characters and ``" # % ' * / : = ? \\ { [ ] ^`` are written as ``%XX``, two upper-case digits; ``}`` and the
  space are not.
* Reading takes every component of the form ``key=value`` and skips all others. The text after a ``%`` is a code only if
  it is two hexadecimal digits; otherwise the ``%`` stands for itself.
* A column that is null or empty has the name of the default partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from engine.elements.errors import WeirError

DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
"""Stands in a path for a value that is null or empty."""

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\{\[\]^\x7f]""")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CODE = re.compile("%([0-9A-Fa-f]{2})")
# Greedy, so the key of "a=b=c" is "a=b"; a writer of paths would have escaped the second "=".
_KEY_AND_VALUE = re.compile("([^/]+)=([^/]+)")


class PartitionPathError(WeirError, ValueError):
    """A value cannot name a directory."""


def escape_path_name(text: str) -> str:
    """``text`` with the escapes of a path.

    Raises :class:`PartitionPathError` for the empty text, which cannot name a directory.
    """
    if not text:
        raise PartitionPathError("the name or the value of a partition column is empty, which names no directory")
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", text)


def unescape_path_name(text: str) -> str:
    """The inverse of :func:`escape_path_name`."""
    return _CODE.sub(lambda match: chr(int(match[1], 16)), text)


def generate_partition_path(spec: Iterable[tuple[str, str]]) -> str:
    """``k=v/k2=v2/``, with a slash at the end; the empty text for no column.

    Raises :class:`PartitionPathError` when a name or a value is empty, or is not a valid file name.
    """
    spec = list(spec)
    for key, value in spec:
        if _SURROGATE.search(value):
            raise PartitionPathError(
                f"partition column {key!r} is {value!r}; a lone surrogate stands in no path, so clean it with"
                " value.encode('utf-8', 'replace').decode()"
            )
    return "".join([f"{escape_path_name(key)}={escape_path_name(value)}/" for key, value in spec])


def extract_partition_spec(path: str) -> list[tuple[str, str]]:
    """Columns and values of the ``key=value`` components of ``path``, in order. A repeated column keeps its place and
    takes the later value."""
    matches = map(_KEY_AND_VALUE.fullmatch, path.split("/"))
    return list({unescape_path_name(one[1]): unescape_path_name(one[2]) for one in matches if one}.items())


def partition_directory(
    columns: Sequence[str], values: Sequence[object], default_name: str = DEFAULT_PARTITION_NAME
) -> str:
    """The directory of the partition of these values, ``k=v/k2=v2``. Null or empty values become ``default_name``;
    values that are not text are written by ``str``."""
    texts = ["" if value is None else str(value) for value in values]
    spec = zip(columns, [text or default_name for text in texts], strict=True)
    return generate_partition_path(spec).removesuffix("/")


def partition_path(**columns: object) -> str:
    """A bucket id in Hive's style: ``partition_path(year=2013, day=1)`` is ``"year=2013/day=1"``.

    Special characters are written as ``%XX``; ``None`` and the empty text as ``__DEFAULT_PARTITION__``.
    """
    return partition_directory(list(columns), list(columns.values()))


def partition_values(path: str, columns: Sequence[str], default_name: str = DEFAULT_PARTITION_NAME) -> list[str | None]:
    """The values of ``columns`` in ``path``, in the order of ``columns``; ``None`` for the default partition.

    Raises :class:`PartitionPathError` when the path does not name them all.
    """
    spec = dict(extract_partition_spec(path))
    missing = [column for column in columns if column not in spec]
    if missing:
        raise PartitionPathError(
            f"partition {path!r} says nothing of {', '.join(map(repr, missing))}\n"
            f"  it should look like {'/'.join(f'{column}=...' for column in columns)}"
        )
    return [None if spec[column] == default_name else spec[column] for column in columns]
