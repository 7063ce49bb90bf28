"""Reading parts of files: byte ranges of lines, compressed files, records of fixed length, changed files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import (
    ConfigurationError,
    JobChangedError,
    MalformedRecordError,
    StateError,
    UserFunctionError,
)
from operators.files.formats import CorruptFileError, CsvFormat, TextFormat, open_input
from operators.files.formats.compressed_files import DecompressedFile
from operators.files.reading import FileSource, FixedLengthFormat, line_reader
from operators.files.reading.stream_formats import MalformedContentError
from operators.sources import SourceOperator
from state_backends.files import MemoryFileSystem
from tests.operators.files.reading.test_file_source import PATH, file_system, world
from tests.operators.harness import Checkpoint, Harness, read_all
from tests.operators.sources.test_in_memory import SourceWorld, drain

CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r")
LINES = st.lists(st.text(CHARACTERS, max_size=6), max_size=9)


# --- ranges of lines --------------------------------------------------------------------------------------


@given(LINES, st.booleans(), st.integers(1, 20), st.sampled_from([3, 16, 1 << 17]), st.booleans(), st.booleans())
def test_each_line_is_in_one_split(
    lines: list[str], last_break: bool, size: int, block: int, header: bool, mark: bool
) -> None:
    """However a file is cut, its splits are its lines, and each goes on at every position that it reports."""
    rows = ["x", *lines] if header else lines
    content = "\n".join(rows) + ("\n" if last_break and rows else "")
    place = world(b"\xef\xbb\xbf" * mark + content.encode())
    expected = (content.removesuffix("\n").split("\n") if content else [])[int(header) :]
    form = _Headed() if header else TextFormat()
    source = FileSource(PATH, form, split_bytes=size)
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", block)
        for split in source.splits(place):
            reader = source.open_split(split, None, place)
            while (batch := reader.read(2)) is not None:
                read += batch.values
                rest = drain(source.open_split(split, reader.position(), place))
                assert rest == drain(_copy(source, split, reader, place))
    assert read == expected


class _Headed(TextFormat):
    has_header = True


def _copy(source: FileSource, split: str, reader: Any, place: SourceWorld) -> Any:
    """The rest of what a reader would read, without moving the reader."""
    return source.open_split(split, reader.position()[:2], place)


def test_splits_that_are_pulled_and_splits_that_are_dealt_out_hold_the_same() -> None:
    """The last one has no end if an enumerator knows it, and a nominal one if it must be found again."""
    place = world(b"".join(b"line %d\n" % number for number in range(20)))
    dealt = FileSource(PATH, TextFormat(), split_bytes=50)
    pulled = FileSource(PATH, TextFormat(), split_bytes=50, assignment="pull")

    assert [drain(dealt.open_split(one, None, place)) for one in dealt.splits(place)] == [
        drain(pulled.open_split(one.id, None, place)) for one in pulled.enumerate_splits(place, is_first=True)
    ]
    assert dealt.splits(place)[-1] == f"{PATH}@100+50"
    assert pulled.enumerate_splits(place, is_first=True)[-1].id == f"{PATH}@100+"
    assert [one.id for one in pulled.enumerate_splits(place, is_first=False)] == [PATH]


def test_a_line_in_the_middle_of_a_file_is_called_by_its_number() -> None:
    """Lines are counted from the beginning of the file, also after a restore."""
    rows = b"".join(b"%d,a\n" % number for number in range(10)) + b"ten,a\nx,b\n11,c\n"
    place = world(b"id,text\n" + rows)
    form = CsvFormat(("id", "text"), types={"id": int}, record="tuple")
    source = FileSource(PATH, form, split_bytes=20, on_malformed="side_output")
    for split in source.splits(place):
        reader = source.open_split(split, None, place)
        first = reader.read(1)
        drain(source.open_split(split, reader.position(), place) if first is not None else reader)

    assert {batch.values[0]["line"]: batch.values[0]["content"] for _, batch in place.side} == {12: "ten,a", 13: "x,b"}


def test_a_split_inside_one_line_is_empty() -> None:
    """The line belongs to the split in which it begins."""
    place = world(b"a" * 50 + b"\nb\n")
    source = FileSource(PATH, TextFormat(), split_bytes=10)

    assert [drain(source.open_split(one, None, place)) for one in source.splits(place)] == [
        ["a" * 50], [], [], [], [], ["b"],
    ]  # fmt: skip


def test_a_line_without_end_is_refused_where_a_split_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the first line break reads no more than a line may have."""
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 20)
    place = world(b"a" * 100)

    with pytest.raises(MalformedRecordError, match="longer than 20 bytes"):
        FileSource(PATH, TextFormat(), split_bytes=10).open_split(f"{PATH}@10+10", None, place)


# --- files that change ------------------------------------------------------------------------------------


def test_a_file_that_was_changed_before_the_position_is_refused() -> None:
    """The change is found even if the length is the same and a line still begins at the position."""
    source = FileSource(PATH, TextFormat())
    place = world(b"abc\ndef\nghi\n")
    reader = source.open_split(PATH, None, place)
    reader.read(2)
    position = reader.position()

    assert drain(source.open_split(PATH, position, world(b"abc\ndef\nGHI\n"))) == ["GHI"]
    with pytest.raises(StateError, match="the 8 bytes before byte 8 are others than they were"):
        source.open_split(PATH, position, world(b"abc\ndEf\nghi\n"))
    with pytest.raises(StateError, match=r"no line starts at byte 8 \(4 bytes now\)\n  put the old file back"):
        source.open_split(PATH, position, world(b"abc\n"))
    # A position of a checkpoint from before there were checksums.
    assert drain(source.open_split(PATH, position[:2], world(b"abc\ndEf\nghi\n"))) == ["ghi"]


def test_what_is_appended_is_read_as_far_as_it_is_there() -> None:
    """If the last line had no end and has grown since, it is refused; new lines are read."""
    source = FileSource(PATH, TextFormat())
    reader = source.open_split(PATH, None, world(b"abc\nde"))
    assert drain(reader) == ["abc", "de"]

    assert drain(source.open_split(PATH, reader.position(), world(b"abc\nde"))) == []
    with pytest.raises(StateError, match="no line starts at byte 6"):
        source.open_split(PATH, reader.position(), world(b"abc\ndef\n"))
    whole = source.open_split(PATH, None, world(b"abc\n"))
    drain(whole)
    assert drain(source.open_split(PATH, whole.position(), world(b"abc\ndef\n"))) == ["def"]


def test_the_checksum_reaches_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes before a position may have been read with an earlier block, or before the restore."""
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 5)
    monkeypatch.setattr(line_reader, "CHECKED_BYTES", 8)
    source = FileSource(PATH, TextFormat())
    content = b"ab\ncd\nef\ngh\nij\n"
    place = world(content)
    reader = source.open_split(PATH, None, place)
    while reader.read(1) is not None:
        reader = source.open_split(PATH, reader.position(), place)
        changed = bytearray(content)
        at = reader.position()[0] - min(8, reader.position()[0])
        changed[at] ^= 1
        with pytest.raises(StateError, match="are others than they were"):
            source.open_split(PATH, reader.position(), world(bytes(changed)))


def test_a_file_that_may_not_be_read_is_a_clear_error() -> None:
    """It names the file, and no restart is tried."""

    class Forbidden(MemoryFileSystem):
        def open_read(self, path: str) -> Any:
            raise PermissionError(13, "Permission denied", path)

    fs = Forbidden()
    fs.make_dirs("/in")
    with fs.open_write(PATH) as file:
        file.write(b"x")
    with pytest.raises(ConfigurationError, match="file '/in/data' of source 'numbers' cannot be read"):
        FileSource(PATH, TextFormat()).open_split(PATH, None, SourceWorld(fs))


def test_a_file_that_is_cut_otherwise_than_before_is_refused() -> None:
    """Finished splits would be read again under other names; a file that has only grown gets further splits."""
    fs = file_system({PATH: b"".join(b"line %d\n" % number for number in range(20))})

    def harness(split_bytes: int | None, restored: Checkpoint | None = None) -> Harness:
        source = FileSource(PATH, TextFormat(), split_bytes=split_bytes)
        return Harness(SourceOperator(source), fs=fs, restored=restored)

    first = harness(60)
    whole = [value for batch in read_all(first) for value in batch.values]
    checkpoint = first.snapshot(1)
    for other in (None, 50):
        with pytest.raises(JobChangedError, match=r"the file is cut otherwise now.*\n  give the source the"):
            harness(other, checkpoint)
    with pytest.raises(JobChangedError, match=r"the file is shorter now: its last split is '.*@0\+60'\n  put the old"):
        Harness(
            SourceOperator(FileSource(PATH, TextFormat(), split_bytes=60)),
            fs=file_system({PATH: b"line 0\n"}),
            restored=checkpoint,
        )
    with fs.open_append(PATH) as file:
        file.write(b"more\n" * 20)
    grown = [value for batch in read_all(harness(60, checkpoint)) for value in batch.values]
    assert (len(whole), grown) == (20, ["more"] * 20)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(0, 12), st.integers(1, 20))
def test_a_file_that_grows_is_read_whole(lengths: list[int], before: int, split_bytes: int) -> None:
    """Whatever was there at first, and wherever splits end: each line is read once, before the restart or behind it;
    unless the file has gained no split, and what it has gained is left for the next time."""
    lines = ["x" * length + "\n" for length in lengths]
    fs = file_system({PATH: "".join(lines[:before]).encode()})

    def harness(restored: Checkpoint | None = None) -> Harness:
        source = FileSource(PATH, TextFormat(), split_bytes=split_bytes)
        return Harness(SourceOperator(source), fs=fs, restored=restored)

    first = harness()
    read = [value for batch in read_all(first) for value in batch.values]
    checkpoint = first.snapshot(1)
    size_bytes = fs.size(PATH)
    with fs.open_append(PATH) as file:
        file.write("".join(lines[before:]).encode())
    has_gained = -(-max(fs.size(PATH), 1) // split_bytes) > -(-max(size_bytes, 1) // split_bytes)
    read += [value for batch in read_all(harness(checkpoint)) for value in batch.values]
    expected = lines if has_gained else lines[:before]
    assert sorted(read) == sorted(line.removesuffix("\n") for line in expected)


# --- compressed files -------------------------------------------------------------------------------------


def _zstd(data: bytes) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": _zstd,
}


@pytest.mark.parametrize("suffix", CODECS)
def test_a_compressed_file_is_read_like_any_other(suffix: str) -> None:
    """It is read from every position, with a header, as one split of any size, and with several streams in one file."""
    path, compress = f"/in/data.csv.{suffix}", CODECS[suffix]
    rows = [f"{number},{'x' * (number % 7)}" for number in range(300)]
    head = "id,text\n" + "\n".join(rows[:150]) + "\n"
    place = SourceWorld(file_system({path: compress(head.encode()) + compress("\n".join(rows[150:]).encode())}))
    source = FileSource(path, CsvFormat(("id", "text"), record="tuple"), split_bytes=10)
    expected = [tuple(row.split(",")) for row in rows]

    assert source.splits(place) == [path]
    reader, seen = source.open_split(path, None, place), []
    while (batch := reader.read(70)) is not None:
        seen += batch.values
        assert seen + drain(source.open_split(path, reader.position(), place), 100) == expected
    assert seen == expected


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
def test_a_torn_compressed_file_is_no_short_file(suffix: str) -> None:
    """A file that ends too early, or is not compressed, is an error that names the file and how to go on."""
    whole = CODECS[suffix](bytes(range(256)) * 400)
    path = f"/in/data.{suffix}"
    for content in (whole[: len(whole) // 2], b"no such stream", whole + b"more"):
        source = FileSource(path, TextFormat("latin-1"))
        place = SourceWorld(file_system({path: content}))
        with pytest.raises(CorruptFileError, match=f"{path}: not a whole .* file: .*\n  put a good copy in its place"):
            drain(source.open_split(path, None, place), 1000)


def test_the_user_knows_better_than_the_name() -> None:
    """A codec, or none, may be named explicitly; an unknown name is refused."""
    place = SourceWorld(file_system({"/in/a.gz": b"plain\n", "/in/b": gzip.compress(b"packed\n")}))

    assert drain(FileSource("/in/a.gz", TextFormat(), compression="none").open_split("/in/a.gz", None, place)) == [
        "plain"
    ]
    assert drain(FileSource("/in/b", TextFormat(), compression="gzip").open_split("/in/b", None, place)) == ["packed"]
    with pytest.raises(ConfigurationError, match="compression must be 'auto'"):
        FileSource("/in/b", TextFormat(), compression="rar")  # type: ignore[arg-type]


def test_a_compressed_file_that_is_copied_stands_where_it_stood() -> None:
    """Runs are copied in memory, and a decompressor cannot be: the copy begins again and reads up to the position."""
    fs = file_system({"/in/a.gz": gzip.compress(b"one\ntwo\nthree\n")})
    file: Any = open_input(fs, "/in/a.gz", "auto")
    assert isinstance(file, DecompressedFile)
    assert file.readline() == b"one\n"
    copy = pickle.loads(pickle.dumps(file))

    assert copy.read() == file.read() == b"two\nthree\n"
    assert (copy.tell(), copy.seek(4), copy.read(3), copy.seek(0, 2)) == (14, 4, b"two", 14)


# --- records without lines --------------------------------------------------------------------------------

INTS = b"".join(number.to_bytes(4, "big") for number in range(50))


def decode(data: bytes) -> int:
    return int.from_bytes(data, "big")


@given(st.integers(1, 60), st.booleans(), st.integers(1, 40), st.integers(1, 7))
def test_records_of_fixed_length_resume_everywhere(size: int, reports: bool, fetch: int, most: int) -> None:
    """In every split, with and without positions, whatever is read ahead."""
    place = world(INTS)
    form = FixedLengthFormat(4, decode, fetch_bytes=fetch, reports_positions=reports)
    source = FileSource(PATH, form, split_bytes=size)
    read: list[int] = []
    for split in source.splits(place):
        reader = source.open_split(split, None, place)
        while (batch := reader.read(most)) is not None:
            read += batch.values
            position = reader.position()
            assert (position[0] == -1) is not reports
            reader = source.open_split(split, position, place)
    assert read == list(range(50))


def test_a_position_counts_from_the_beginning_of_its_batch() -> None:
    """It counts from the beginning of the split if the format does not know its position."""
    place = world(INTS)
    for reports, expected in ((True, [(0, 2), (12, 1)]), (False, [(-1, 2), (-1, 4)])):
        source = FileSource(PATH, FixedLengthFormat(4, decode, fetch_bytes=10, reports_positions=reports))
        reader = source.open_split(PATH, None, place)
        positions = []
        for most in (2, 1, 1):
            reader.read(most)
            positions.append(reader.position())
        assert [positions[0], positions[2]] == expected


def test_what_goes_wrong_in_a_format_says_where() -> None:
    """A torn record, a bug in the function, and a file that has fewer records than were read."""
    place = world(INTS + b"xx")
    source = FileSource(PATH, FixedLengthFormat(4, decode))
    problem = r"about byte \d+: the file ends after 2 of the 4 bytes of a record\n  fix the file, or the format"
    with pytest.raises(MalformedContentError, match=problem):
        drain(source.open_split(PATH, None, place), 100)
    with pytest.raises(UserFunctionError, match="the format's reader of operator 'numbers' raised ZeroDivisionError"):
        drain(FileSource(PATH, FixedLengthFormat(4, lambda data: 1 // 0)).open_split(PATH, None, place))
    source = FileSource(PATH, FixedLengthFormat(4, decode, reports_positions=False))
    with pytest.raises(StateError, match="it has 50 records where 60 had been read"):
        source.open_split(PATH, (-1, 60), world(INTS))
    with pytest.raises(ConfigurationError, match="record_bytes is 0; it must be a whole number from 1"):
        FixedLengthFormat(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_bytes": 0}, "split_bytes is 0; it must be a whole number from 1, or None"),
        ({"monitor_interval_ms": 1.5}, "monitor_interval_ms is 1.5; it must be a whole number from 1, or None"),
        ({"assignment": "push"}, "assignment must be 'static' or 'pull', got 'push'"),
        ({"assignment": "static", "monitor_interval_ms": 5}, "monitor_interval_ms= needs assignment='pull'"),
        ({"assigner": "random"}, "assigner must be one of 'lifo', 'fifo', got 'random'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    """They are refused when the source is made, with a value that would work."""
    with pytest.raises(ConfigurationError, match=message):
        FileSource(PATH, TextFormat(), **options)
