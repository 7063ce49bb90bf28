"""Text files as a source: one split per file, byte offsets as positions.

A position is ``(byte offset, line number)`` of the first line that has not been consumed, so that a
restored reader starts exactly there and still names the right line in an error. Positions are worked out
when they are asked for (at snapshots), not per record.

Lines are consumed in order: a malformed line is reported when the reader gets to it, not when the block that
holds it is parsed, so a restored reader reports every line exactly once too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Literal, NamedTuple

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, MalformedRecordError, StateError
from engine.elements.source import SourceContext, SplitReader
from operators.files.file_formats import LineError, LineFormat
from operators.files.file_listing import list_files

BLOCK_BYTES = 1 << 17
MAX_LINE_BYTES = 1 << 24
MALFORMED_TAG = "malformed"
_BOM = b"\xef\xbb\xbf"

OnMalformed = Literal["fail", "skip", "side_output"]


class FileSource:
    """The records of files, one split per file, in the order of their paths.

    ``paths``         a file, a directory (all files below it; names starting with ``.`` or ``_`` are hidden), a
                      pattern with ``*``, ``?`` or ``[...]``, or a sequence of those;
    ``format``        ``CsvFormat``, ``JsonLinesFormat``, ``TextFormat`` or anything like them;
    ``on_malformed``  what to do with a line that is not what the format says: ``"fail"`` raises
                      ``MalformedRecordError``, ``"skip"`` drops it, ``"side_output"`` sends a dict with
                      ``path``, ``line``, ``content`` and ``why`` to side output ``malformed``. The latter
                      two count it in ``numRecordsMalformed``.

    The files are listed once, when a job starts without a checkpoint; a restored job reads the files it
    knows.
    """

    def __init__(
        self, paths: str | Sequence[str], format: LineFormat, *, on_malformed: OnMalformed = "fail"
    ) -> None:
        if on_malformed not in ("fail", "skip", "side_output"):
            raise ConfigurationError(
                f"on_malformed must be 'fail', 'skip' or 'side_output', got {on_malformed!r}"
            )
        self._paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self._format = format
        self._on_malformed: OnMalformed = on_malformed

    @property
    def paths(self) -> tuple[str, ...]:
        """Of files, directories and patterns, as given."""
        return self._paths

    def splits(self, context: SourceContext) -> Sequence[str]:
        """The paths of all files. Raises ``ConfigurationError`` when there are none."""
        return list_files(context.file_system(), self._paths)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader of file ``split`` from ``position`` on.

        Raises ``StateError`` when the file is gone or no longer reaches to ``position``.
        """
        fs = context.file_system()
        if not fs.exists(split):
            raise StateError(
                f"file {split!r} of source {context.name!r} does not exist (any more)\n"
                "  put it back, or start without the checkpoint"
            )
        file = fs.open_read(split)
        try:
            return _FileReader(file, split, self._format, position, self._on_malformed, context)
        except BaseException:
            file.close()
            raise


class _Problem(NamedTuple):
    line: int
    content: str
    why: str


class _Block(NamedTuple):
    """Parsed complete lines. ``record_lines[i]`` is the line of record ``i``; ``None``: record ``i`` is line ``i``."""

    data: bytes
    line_count: int
    records: list[Any]
    record_lines: list[int] | None
    problems: list[_Problem]


_NO_BLOCK = _Block(b"", 0, [], None, [])


class _FileReader:
    """Reads one file. ``_line`` lines of the current block are consumed and ``_next`` of its records returned."""

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        spec: LineFormat,
        position: Any,
        on_malformed: OnMalformed,
        context: SourceContext,
    ) -> None:
        self._file = file
        self._path = path
        self._encoding = spec.encoding
        self._on_malformed = on_malformed
        self._context = context
        self._carry = b""
        self._block = _NO_BLOCK
        self._line = self._next = 0
        self._block_offset, self._block_first_line = self._start(spec, position)

    def _start(self, spec: LineFormat, position: Any) -> tuple[int, int]:
        """Read the header, go to ``position`` and return it as (offset, line number)."""
        offset, line_number = self._skip_bom(), 1
        header = None
        if spec.has_header:
            raw = self._file.readline(MAX_LINE_BYTES)
            offset, line_number = offset + len(raw), 2
            header = self._decode_header(raw)
        try:
            self._parser = spec.parser(header)
        except LineError as error:
            raise MalformedRecordError(self._path, 1, header or "", str(error)) from None
        if position is not None:
            offset, line_number = position
        self._seek(offset)
        return offset, line_number

    def _skip_bom(self) -> int:
        if self._encoding.lower().replace("_", "-") in ("utf-8", "utf8") and self._file.read(3) == _BOM:
            return len(_BOM)
        self._file.seek(0)
        return 0

    def _decode_header(self, raw: bytes) -> str:
        if not raw:
            raise MalformedRecordError(self._path, 1, "", "the file is empty, but the format has a header")
        try:
            return raw.decode(self._encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise MalformedRecordError(self._path, 1, repr(raw), _explain_decoding(error)) from None

    def _seek(self, offset: int) -> None:
        # A line starts at the beginning, behind a line break, or at the end of the file.
        end = self._file.seek(0, 2)
        self._file.seek(max(0, min(offset, end) - 1))
        before = self._file.read(1) if offset > 0 else b""
        fits = offset <= end and (before in (b"", b"\n") or offset in (end, len(_BOM)))
        if not fits:
            raise StateError(
                f"file {self._path!r} of source {self._context.name!r} has changed since the checkpoint: no line "
                f"starts at byte {offset} ({end} bytes now)\n  put the old file back, or start without the checkpoint"
            )
        self._file.seek(offset)

    def read(self, max_records: int) -> Batch | None:
        while self._next == len(self._block.records):
            self._report(self._block.line_count)
            self._line = self._block.line_count
            if not self._load_block():
                return None
        records, record_lines, start = self._block.records, self._block.record_lines, self._next
        stop = min(start + max_records, len(records))
        last_line = stop - 1 if record_lines is None else record_lines[stop - 1]
        self._report(last_line)
        self._next, self._line = stop, last_line + 1
        return Batch(records if stop - start == len(records) else records[start:stop])

    def position(self) -> tuple[int, int]:
        data, line = self._block.data, self._line
        if line == self._block.line_count:
            consumed = len(data)
        else:
            consumed = len(data) - len(data.split(b"\n", line)[line])
        return self._block_offset + consumed, self._block_first_line + line

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns

    def close(self) -> None:
        self._file.close()

    def _report(self, end_line: int) -> None:
        """Deal with the malformed lines before line ``end_line`` of the block."""
        problems = self._block.problems
        while problems and problems[0].line < end_line:
            line, content, why = problems.pop(0)
            number = self._block_first_line + line
            if self._on_malformed == "fail":
                raise MalformedRecordError(self._path, number, content, why)
            self._context.count("numRecordsMalformed")
            if self._on_malformed == "side_output":
                record = {"path": self._path, "line": number, "content": content, "why": why}
                self._context.emit_side(MALFORMED_TAG, Batch([record]))

    def _load_block(self) -> bool:
        """Replace the consumed block by the next one; false at the end of the file."""
        data = self._read_lines()
        if not data:
            return False
        self._block_offset += len(self._block.data)
        self._block_first_line += self._block.line_count
        self._block = self._parse(data)
        self._line = self._next = 0
        return True

    def _read_lines(self) -> bytes:
        """Some complete lines as bytes, the last line of the file with or without line break; empty at the end."""
        while True:
            data = self._file.read(BLOCK_BYTES)
            if not data:
                rest, self._carry = self._carry, b""
                return rest
            cut = data.rfind(b"\n") + 1
            if cut:
                lines, self._carry = self._carry + data[:cut], data[cut:]
                return lines
            self._carry += data
            if len(self._carry) > MAX_LINE_BYTES:
                number = self._block_first_line + self._block.line_count
                content = self._carry[:100].decode(self._encoding, "replace")
                why = f"longer than {MAX_LINE_BYTES} bytes; is this a text file with one record per line?"
                raise MalformedRecordError(self._path, number, content, why)

    def _parse(self, data: bytes) -> _Block:
        raw_lines = data.removesuffix(b"\n")
        try:
            lines = raw_lines.decode(self._encoding).split("\n")
            records = self._parser.parse_block(lines)
        except Exception:
            # Whatever is wrong, it is found and explained line by line.
            records = None
        if records is not None:
            return _Block(data, len(lines), records, None, [])
        return self._parse_lines(data, raw_lines.split(b"\n"))

    def _parse_lines(self, data: bytes, raw_lines: list[bytes]) -> _Block:
        block = _Block(data, len(raw_lines), [], record_lines := [], [])
        for number, raw in enumerate(raw_lines):
            try:
                parsed = self._parser.parse_line(raw.decode(self._encoding))
            except UnicodeDecodeError as error:
                block.problems.append(_Problem(number, repr(raw), _explain_decoding(error)))
            except LineError as error:
                block.problems.append(_Problem(number, raw.decode(self._encoding), str(error)))
            else:
                block.records.extend(parsed)
                record_lines.extend([number] * len(parsed))
            if block.problems and self._on_malformed == "fail":
                # What lies behind it is never reached.
                break
        return block


def _explain_decoding(error: UnicodeDecodeError) -> str:
    return f"not {error.encoding}: byte 0x{error.object[error.start]:02x} at position {error.start}"
