"""Reads the lines of a split of a text file, in blocks, from any position.

Rules
-----
* A position is ``(byte offset, line number, checksum)`` of the first line that has not been consumed. It is computed
  when it is asked for (at snapshots), not per record. Every line begins at an offset, so no records are counted after
  it.
* A split that does not begin with its file begins after the first line break at or after its offset. A split with an
  end ends with the line that begins at or before it (Hadoop: ``LineRecordReader``). So each line is in one split.
* The checksum covers up to ``CHECKED_BYTES`` bytes before the position. If these bytes have changed, the restore
  refuses the file and does not continue in the middle of other content.
* Lines are consumed in order. A malformed line is reported when the reader reaches it, not when its block is parsed. So
  a restored reader, too, reports every line exactly once.
* Lines are numbered from the beginning of their file. A split that begins later counts the lines before it only when an
  error needs the number.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Literal, NamedTuple
from zlib import crc32

from engine.elements.batch import Batch
from engine.elements.errors import MalformedRecordError
from engine.elements.source import SourceContext
from operators.files.formats import LineError, LineFormat
from operators.files.reading.splits import FileSplitReader, SplitRange

BLOCK_BYTES = 1 << 17
MAX_LINE_BYTES = 1 << 24
CHECKED_BYTES = 1 << 10
MALFORMED_TAG = "malformed"
_BOM = b"\xef\xbb\xbf"

OnMalformed = Literal["fail", "skip", "side_output"]


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


class LineReader(FileSplitReader):
    """Reads one split. ``_line`` lines of the current block are consumed and ``_next`` of its records returned."""

    def __init__(
        self,
        file: BinaryIO,
        split: SplitRange,
        spec: LineFormat,
        position: Any,
        on_malformed: OnMalformed,
        context: SourceContext,
    ) -> None:
        super().__init__(file, split, context)
        self._end = split.end
        self._encoding = spec.encoding
        self._on_malformed = on_malformed
        self._carry = b""
        self._block = _NO_BLOCK
        self._line = self._next = 0
        self._lines_before: int | None = None if split.start else 0
        self._block_offset, self._block_first_line = self._start(spec, position)

    # --- the beginning ------------------------------------------------------------------------------------

    def _start(self, spec: LineFormat, position: Any) -> tuple[int, int]:
        """Read the header, go to ``position`` and return it as (offset, line number)."""
        offset, line_number = self._skip_bom(), 1
        if self._end is not None and not self._split.start:
            # Only the first split has the line after the byte order mark, because no line break precedes it.
            self._end = max(self._end, offset)
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
            offset, line_number, *checksum = position
            self._seek(offset, checksum[0] if checksum else None)
            return offset, line_number
        if self._split.start:
            offset, line_number = self._first_line(), 1
        self._seek(offset, None)
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

    def _first_line(self) -> int:
        """Where the first line begins in a split that does not begin with its file."""
        start = self._split.start
        self._file.seek(start)
        skipped = self._file.readline(MAX_LINE_BYTES)
        if len(skipped) == MAX_LINE_BYTES and not skipped.endswith(b"\n"):
            raise self._too_long(1, skipped)
        return start + len(skipped)

    def _seek(self, offset: int, checksum: int | None) -> None:
        # A line starts at the beginning, after a line break, or at the end of the file.
        self._file.seek(max(0, offset - CHECKED_BYTES))
        self._before = self._file.read(min(offset, CHECKED_BYTES))
        at_end = self._file.read(1) == b""
        reaches = len(self._before) == min(offset, CHECKED_BYTES)
        if not reaches or not (self._before[-1:] in (b"", b"\n") or at_end or offset == len(_BOM)):
            end = self._file.seek(0, 2)
            raise self._changed(f"no line starts at byte {offset} ({end} bytes now)")
        if checksum is not None and checksum != crc32(self._before):
            raise self._changed(f"the {len(self._before)} bytes before byte {offset} are others than they were")
        self._file.seek(offset)

    # --- the reader contract ------------------------------------------------------------------------------

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the split."""
        while self._next == len(self._block.records):
            self._report(self._block.line_count)
            self._line = self._block.line_count
            if not self._load_block():
                return 0
        return len(self._block.records) - self._next

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        records, record_lines, start = self._block.records, self._block.record_lines, self._next
        stop = min(start + max_records, len(records))
        last_line = stop - 1 if record_lines is None else record_lines[stop - 1]
        self._report(last_line)
        self._next, self._line = stop, last_line + 1
        return Batch(records if stop - start == len(records) else records[start:stop])

    def position(self) -> tuple[int, int, int]:
        data, line = self._block.data, self._line
        if line == self._block.line_count:
            consumed = len(data)
        else:
            consumed = len(data) - len(data.split(b"\n", line)[line])
        checked = data[max(0, consumed - CHECKED_BYTES) : consumed]
        if len(checked) < CHECKED_BYTES:
            checked = (self._before + checked)[-CHECKED_BYTES:]
        return self._block_offset + consumed, self._block_first_line + line, crc32(checked)

    # --- malformed lines ----------------------------------------------------------------------------------

    def _report(self, end_line: int) -> None:
        """Handle the malformed lines before line ``end_line`` of the block."""
        problems = self._block.problems
        while problems and problems[0].line < end_line:
            line, content, why = problems.pop(0)
            number = self._line_number(self._block_first_line + line)
            if self._on_malformed == "fail":
                raise MalformedRecordError(self._path, number, content, why)
            self._context.count("numRecordsMalformed")
            if self._on_malformed == "side_output":
                record = {"path": self._path, "line": number, "content": content, "why": why}
                self._context.emit_side(MALFORMED_TAG, Batch([record]))

    def _line_number(self, line: int) -> int:
        """The number in the file of a line of the split."""
        if self._lines_before is None:
            returned_to = self._file.tell()
            left, self._lines_before = self._first_line(), 0
            self._file.seek(0)
            while left > 0 and (data := self._file.read(min(left, BLOCK_BYTES))):
                self._lines_before += data.count(b"\n")
                left -= len(data)
            self._file.seek(returned_to)
        return self._lines_before + line

    def _too_long(self, line: int, content: bytes) -> MalformedRecordError:
        why = f"longer than {MAX_LINE_BYTES} bytes; is this a text file with one record per line?"
        return MalformedRecordError(self._path, line, content[:100].decode(self._encoding, "replace"), why)

    # --- blocks -------------------------------------------------------------------------------------------

    def _load_block(self) -> bool:
        """Replace the consumed block by the next one; false at the end of the split."""
        block = self._block
        start = self._block_offset + len(block.data)
        data = self._owned(start, self._read_lines()) if self._owns(start) else b""
        if not data:
            return False
        self._before = (self._before + block.data[-CHECKED_BYTES:])[-CHECKED_BYTES:]
        self._block_offset = start
        self._block_first_line += block.line_count
        # The records of the new block take the memory of the old ones, which is in the processor's cache.
        del block
        self._block = _NO_BLOCK
        self._block = self._parse(data)
        self._line = self._next = 0
        return True

    def _owns(self, offset: int) -> bool:
        """Whether a line that begins at ``offset`` or later may belong to the split."""
        return self._end is None or offset <= self._end

    def _owned(self, start: int, data: bytes) -> bytes:
        """The lines of ``data``, which begins at ``start``, that begin at or before the end of the split."""
        end = self._end
        if end is None or start + len(data) <= end:
            return data
        return data[: data.find(b"\n", end - start) + 1] or data

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
                number = self._line_number(self._block_first_line + self._block.line_count)
                raise self._too_long(number, self._carry)

    def _parse(self, data: bytes) -> _Block:
        raw_lines = data.removesuffix(b"\n")
        try:
            lines = raw_lines.decode(self._encoding).split("\n")
            records = self._parser.parse_block(lines)
        except Exception:
            # Parsing line by line finds and explains the error.
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
                # The lines after it are never reached.
                break
        return block


def _explain_decoding(error: UnicodeDecodeError) -> str:
    return f"not {error.encoding}: byte 0x{error.object[error.start]:02x} at position {error.start}"
