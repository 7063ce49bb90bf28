"""Compressed input files: gzip, bzip2, xz and zstandard, read as if they were not compressed.

Rules
-----
* The end of the name determines the codec (Flink: ``FileInputFormat``), unless the user sets it.
* A compressed file cannot be split, and its positions are offsets in the decompressed content. To reach one, the reader
  decompresses the file from its beginning and drops the bytes before (Flink also re-reads such a split from its start,
  and drops records).
* Several compressed streams, one after the other, are one file, as ``cat a.gz b.gz`` makes them.
* A file that ends before its stream, or is not such a stream, is an error that names the file, not its end.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Literal, Protocol, cast

from engine.elements.errors import ConfigurationError, MalformedRecordError, MissingDependencyError, WeirError
from state_backends.files import FileSystem

Compression = Literal["auto", "none", "gzip", "bzip2", "xz", "zstd"]

_READ_BYTES = 1 << 16

_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}


class CorruptFileError(WeirError):
    """A compressed file ends too early, or does not have the format of its name."""

    exit_code = MalformedRecordError.exit_code

    def __init__(self, path: str, codec: str, why: str) -> None:
        self.path, self.codec = path, codec
        otherwise = (
            "read it with the format that it has"
            if codec in ("Parquet", "Avro", "ORC")
            else "say what it is with compression='none' (or another codec)"
        )
        super().__init__(f"{path}: not a whole {codec} file: {why}\n  put a good copy in its place, or {otherwise}")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def import_pyarrow(files: str = "Parquet") -> Any:
    """``pyarrow`` with ``pyarrow.parquet``. Raises ``MissingDependencyError`` that says which files need it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"{files} files need pyarrow, which is not installed\n  fix: pip install 'weirstream[parquet]'"
        ) from error
    return pyarrow


def import_orc() -> Any:
    """``pyarrow.orc``. Raises ``MissingDependencyError``."""
    import_pyarrow("ORC")
    try:
        import pyarrow.orc
    except ImportError as error:
        raise MissingDependencyError(
            "this pyarrow was built without ORC\n  fix: install pyarrow's own distribution of this platform"
        ) from error
    return pyarrow.orc


class _ArrowDecompressor:
    """A stream of pyarrow pulls its input, so it gets the whole file first and is read at the end of the file."""

    eof = False
    unused_data = b""

    def __init__(self) -> None:
        self._pyarrow = import_pyarrow("zstandard")
        self._compressed: list[bytes] = []

    def decompress(self, data: bytes, /) -> bytes:
        self._compressed.append(data)
        return b""

    def finish(self) -> bytes:
        """All decompressed bytes."""
        source = self._pyarrow.BufferReader(b"".join(self._compressed))
        self._compressed.clear()
        with self._pyarrow.CompressedInputStream(source, "zstd") as stream:
            return cast(bytes, stream.read())


_CODECS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
    "zstd": _ArrowDecompressor,
}

_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def check_compression(compression: object) -> None:
    """Raise ``ConfigurationError`` unless it is one of the values of :data:`Compression`."""
    if compression not in ("auto", "none", *_CODECS):
        raise ConfigurationError(
            f"compression must be 'auto' (by the end of the name), 'none', {', '.join(map(repr, _CODECS))}; "
            f"got {compression!r}"
        )


def codec_of(path: str, compression: Compression) -> str | None:
    """The codec of a file; ``None`` when it is not compressed."""
    if compression == "auto":
        return next((codec for suffix, codec in _SUFFIXES.items() if path.lower().endswith(suffix)), None)
    return None if compression == "none" else compression


def open_input(fs: FileSystem, path: str, compression: Compression) -> BinaryIO:
    """Opens the content of a file for reading."""
    codec = codec_of(path, compression)
    file = fs.open_read(path)
    if codec is None:
        return file
    return cast(BinaryIO, DecompressedFile(file, path, codec))


class DecompressedFile:
    """The content of a compressed file. Seeking back begins again; seeking forward reads and drops."""

    def __init__(self, file: BinaryIO, path: str, codec: str) -> None:
        self._file, self._path, self._codec = file, path, codec
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._decompressor: _Decompressor | None = None
        self._ready = b""
        self._position = 0
        self._is_over = False

    def __getstate__(self) -> dict[str, Any]:
        # A decompressor cannot be copied; a copy begins again and goes to the position.
        return {"file": self._file, "path": self._path, "codec": self._codec, "position": self._position}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file, self._path, self._codec = state["file"], state["path"], state["codec"]
        self._rewind()
        self.seek(state["position"])

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end; everything that is left if ``size`` is negative."""
        pieces, missing = [self._ready], size - len(self._ready)
        while (size < 0 or missing > 0) and not self._is_over:
            piece = self._more()
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        cut = len(data) if size < 0 else min(size, len(data))
        self._ready = data[cut:]
        self._position += cut
        return data[:cut]

    def readline(self, size: int = -1) -> bytes:
        """A line with its break, or its first ``size`` bytes."""
        while b"\n" not in self._ready and not self._is_over and (size < 0 or len(self._ready) < size):
            self._ready += self._more()
        end = self._ready.find(b"\n") + 1 or len(self._ready)
        return self.read(end if size < 0 else min(end, size))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to ``offset``; with ``whence`` 2 to the end."""
        if whence == 2:
            while self.read(_READ_BYTES):
                pass
            return self._position
        if offset < self._position:
            self._rewind()
        while self._position < offset and self.read(min(offset - self._position, _READ_BYTES)):
            pass
        return self._position

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._position

    def close(self) -> None:
        self._file.close()

    def _more(self) -> bytes:
        """Some further bytes, perhaps none; sets ``_is_over`` at the end of the file."""
        decompressor = self._decompressor
        rest = b"" if decompressor is None else decompressor.unused_data
        data = rest if decompressor is not None and decompressor.eof and rest else self._file.read(_READ_BYTES)
        try:
            if decompressor is None or (decompressor.eof and data):
                decompressor = self._decompressor = _CODECS[self._codec]()
            if data:
                return decompressor.decompress(data)
            self._is_over = True
            if isinstance(decompressor, _ArrowDecompressor):
                return decompressor.finish()
        except _ERRORS as error:
            raise CorruptFileError(self._path, self._codec, str(error)) from error
        if not decompressor.eof:
            raise CorruptFileError(self._path, self._codec, "it ends in the middle of its data")
        return b""
