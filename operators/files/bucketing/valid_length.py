"""Files that say how much of another file is valid (Flink: ``BucketingSink``, for file systems that cannot truncate).

The content is a decimal number in the format of Java's ``writeUTF``: two bytes, big-endian, with the length of the
text, and the text.
"""

from __future__ import annotations

import posixpath

from engine.elements.errors import StorageError
from state_backends.files import FileSystem


def encode_valid_length(length_bytes: int) -> bytes:
    """The content of the file for this length."""
    text = str(length_bytes).encode("ascii")
    return len(text).to_bytes(2, "big") + text


def decode_valid_length(content: bytes) -> int:
    """The length. Raises ``ValueError`` for anything that :func:`encode_valid_length` does not write."""
    text = content[2:]
    if int.from_bytes(content[:2], "big") != len(text) or not text.isdigit():
        raise ValueError(f"{content[:40]!r} is no valid length")
    length_bytes = int(text)
    if encode_valid_length(length_bytes) != content:
        raise ValueError(f"{content[:40]!r} is no valid length as it is written")
    return length_bytes


def read_valid_length(fs: FileSystem, path: str) -> int:
    """The length in the file of that name. Raises :class:`StorageError` when it is damaged."""
    try:
        return decode_valid_length(fs.read_bytes(path))
    except ValueError as error:
        raise StorageError(
            f"{path} should say how much of a part is valid, but is damaged: {error}\n"
            "  fix: delete it and resume from the last checkpoint, which writes it again"
        ) from error


def has_valid_length(fs: FileSystem, path: str, length_bytes: int) -> bool:
    """Whether the file holds exactly this length, undamaged."""
    return fs.read_bytes(path) == encode_valid_length(length_bytes)


def write_valid_length(fs: FileSystem, path: str, length_bytes: int) -> None:
    """Write the file, whole or not at all."""
    directory, name = posixpath.split(path)
    # Hidden with any prefix, and not used for anything else.
    temporary = posixpath.join(directory, f".{name}.inprogress")
    with fs.open_write(temporary) as file:
        file.write(encode_valid_length(length_bytes))
        file.fsync()
    fs.rename(temporary, path)
    fs.fsync_dir(directory or ".")
