"""Files as a source: listing, resuming at every position, malformed lines, line numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError, MalformedRecordError, StateError
from operators.files.formats import CsvFormat, JsonLinesFormat, JsonLinesRowFormat, LineFormat, TextFormat
from operators.files.reading import FileSource, FixedLengthFormat, line_reader
from operators.files.reading.line_reader import OnMalformed
from operators.sources import SourceOperator
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Harness, read_all
from tests.operators.sources.test_in_memory import SourceWorld, drain

PATH = "/in/data"
CSV = CsvFormat(("id", "text"), types={"id": int}, record="tuple")


def file_system(files: dict[str, bytes]) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for path, content in files.items():
        fs.make_dirs(path.rpartition("/")[0])
        with fs.open_write(path) as file:
            file.write(content)
    return fs


def world(content: bytes) -> SourceWorld:
    return SourceWorld(file_system({PATH: content}))


@pytest.fixture(params=[7, 64, 1 << 17])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks smaller than a line, of a few lines, and larger than the file."""
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", request.param)
    size: int = request.param
    return size


CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r")
LINES = st.lists(st.text(CHARACTERS, max_size=9), max_size=12)


@given(LINES, st.booleans(), st.sampled_from([5, 30, 1 << 17]), st.integers(1, 5), st.booleans())
def test_a_reader_resumes_at_every_position(
    lines: list[str], last_break: bool, block: int, size: int, carriage_returns: bool
) -> None:
    """From the position behind every batch, a new reader returns exactly the rest, whatever the size of blocks and
    characters and whether or not the file ends with a line break."""
    content = ("\r\n" if carriage_returns else "\n").join(lines) + ("\n" if last_break and lines else "")
    place = world(content.encode())
    expected = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")] if content else []
    source = FileSource(PATH, TextFormat())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", block)
        reader = source.open_split(PATH, None, place)
        seen: list[str] = []
        while True:
            restored = source.open_split(PATH, reader.position(), place)
            assert seen + drain(restored, size) == expected
            assert reader.position()[1] == len(seen) + 1
            batch = reader.read(size)
            if batch is None:
                break
            seen += batch.values
    assert reader.position()[0] == len(content.encode())


def csv_content(rows: int) -> bytes:
    return ("id,text\n" + "".join(f'{row},"té,xt {row}"\n' for row in range(rows))).encode()


@pytest.mark.usefixtures("block_bytes")
def test_csv_with_header_resumes_in_the_middle() -> None:
    """The header is read again on every opening and never taken for a record."""
    place = world(csv_content(20))
    source = FileSource(PATH, CSV)
    reader = source.open_split(PATH, None, place)
    expected = [(row, f"té,xt {row}") for row in range(20)]
    seen: list[Any] = []
    while (batch := reader.read(3)) is not None:
        seen += batch.values
        assert seen + drain(source.open_split(PATH, reader.position(), place)) == expected


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("encoding", ["utf-8", "UTF_8", "latin-1"])
def test_byte_order_mark_and_encodings(encoding: str) -> None:
    """A UTF-8 byte order mark is not part of the first column's name; other encodings are decoded as configured."""
    mark = b"\xef\xbb\xbf" if encoding != "latin-1" else b""
    place = world(mark + "né,b\nä,2\n".encode(encoding))
    source = FileSource(PATH, CsvFormat(encoding=encoding))
    reader = source.open_split(PATH, None, place)

    assert drain(reader) == [{"né": "ä", "b": "2"}]
    text = FileSource(PATH, TextFormat(encoding))
    first = text.open_split(PATH, None, place)
    assert drain(text.open_split(PATH, first.position(), place)) == ["né,b", "ä,2"]


BAD_LINES = b"id,text\n1,a\nx,b\n3,c\n\n4\n\xff,d\n6,e\n7,\"f\n"
GOOD_ROWS = [(1, "a"), (3, "c"), (6, "e")]
PROBLEMS = [
    (3, "x,b", "column 'id': 'x' is no int (ValueError: invalid literal for int() with base 10: 'x')"),
    (6, "4", "1 fields instead of 2"),
    (7, r"b'\xff,d'", "not utf-8: byte 0xff at position 0"),
    (9, '7,"f', "not CSV: a quoted field does not end on its line (fields with line breaks are not supported)"),
]


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("size", [1, 2, 100])
def test_malformed_lines_go_to_the_side_output(size: int) -> None:
    """The good records pass, each bad line comes out once with path, line number, content and reason, counted."""
    place = world(BAD_LINES)
    reader = FileSource(PATH, CSV, on_malformed="side_output").open_split(PATH, None, place)

    assert drain(reader, size) == GOOD_ROWS
    assert [(tag, batch.values) for tag, batch in place.side] == [
        ("malformed", [{"path": PATH, "line": line, "content": content, "why": why}]) for line, content, why in PROBLEMS
    ]
    assert place.counters == {"numRecordsMalformed": 4}


@pytest.mark.usefixtures("block_bytes")
def test_a_resumed_reader_reports_each_malformed_line_once() -> None:
    """Malformed lines before the position are not reported again; later ones are, with the right numbers."""
    source = FileSource(PATH, CSV, on_malformed="side_output")
    for reads in range(5):
        place = world(BAD_LINES)
        reader = source.open_split(PATH, None, place)
        seen: list[Any] = []
        for _ in range(reads):
            batch = reader.read(1)
            seen += batch.values if batch else []
        seen += drain(source.open_split(PATH, reader.position(), place))

        assert seen == GOOD_ROWS
        assert [batch.values[0]["line"] for _, batch in place.side] == [3, 6, 7, 9]


@pytest.mark.usefixtures("block_bytes")
def test_malformed_lines_are_skipped_on_request() -> None:
    """Skipping counts the lines, and reports nothing else."""
    place = world(BAD_LINES)

    assert drain(FileSource(PATH, CSV, on_malformed="skip").open_split(PATH, None, place)) == GOOD_ROWS
    assert (place.side, place.counters) == ([], {"numRecordsMalformed": 4})


@pytest.mark.usefixtures("block_bytes")
def test_a_malformed_line_fails_when_the_reader_gets_to_it() -> None:
    """The error names file, line, content and reason, after the records before it, again and again."""
    place = world(BAD_LINES)
    source = FileSource(PATH, CSV)
    reader = source.open_split(PATH, None, place)
    batch = reader.read(100)
    assert batch is not None
    assert batch.values == [(1, "a")]

    for again in (reader, source.open_split(PATH, reader.position(), place)):
        with pytest.raises(MalformedRecordError) as caught:
            again.read(1)
        assert (caught.value.path, caught.value.line_number, caught.value.content) == (PATH, 3, "x,b")
        assert str(caught.value).startswith(f"{PATH}:3: column 'id': 'x' is no int")


@pytest.mark.parametrize(
    ("content", "spec", "line", "why"),
    [
        (b"", CSV, 1, "the file is empty, but the format has a header"),
        (b"id,other\n", CSV, 1, "the header has no column 'text'"),
        (b"id,\xff\n", CSV, 1, "not utf-8: byte 0xff at position 3"),
        (b"ok\n" + b"x" * 300, TextFormat(), 2, "longer than 200 bytes"),
    ],
)
@pytest.mark.parametrize("on_malformed", ["fail", "skip"])
def test_files_that_cannot_be_read_at_all(
    content: bytes, spec: LineFormat, line: int, why: str, on_malformed: OnMalformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or wrong header, or something without lines, is an error that no option skips."""
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 200)
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 50)

    with pytest.raises(MalformedRecordError, match=why) as caught:
        drain(FileSource(PATH, spec, on_malformed=on_malformed).open_split(PATH, None, world(content)))
    assert caught.value.line_number == line


def test_a_changed_file_is_refused() -> None:
    """A file that is gone, shorter, or has no line where the checkpoint says so, is an error and not garbage."""
    source = FileSource(PATH, TextFormat())

    with pytest.raises(StateError, match="has changed since the checkpoint: no line starts at byte 9"):
        source.open_split(PATH, (9, 3), world(b"abc\ndef\n"))
    with pytest.raises(StateError, match="no line starts at byte 5"):
        source.open_split(PATH, (5, 2), world(b"abc\ndef\n"))
    with pytest.raises(StateError, match="does not exist"):
        FileSource("/in", TextFormat()).open_split("/in/other", (0, 1), world(b""))
    assert drain(source.open_split(PATH, (8, 3), world(b"abc\ndef\n"))) == []


@pytest.mark.parametrize(
    ("paths", "path", "reads"),
    [
        ("/in/data", "/in/data", True),
        ("/in/./data", "/in/data", True),
        ("/in", "/in/sub/data", True),
        ("/in/*.csv", "/in/a.csv", True),
        ("/in/*/x[1]", "/in/d/x1", True),
        ("/in/x[1]", "/in/x[1]", True),
        (".", "data", True),
        ("../in/*", "../in/data", True),
        ("s3://b/in", "s3://b/in/data", True),
        ("/in", "/inner", False),
        ("/in", "/in/../victims/letters", False),
        ("/*/*", "/in/../victims/letters", False),
        ("*/victims/*", "/victims/letters", False),
        (".", "/victims/letters", False),
        (".", "../victims/letters", False),
        ("in", "/in", False),
    ],
)
def test_a_checkpoint_cannot_have_another_file_read(paths: str, path: str, reads: bool) -> None:
    """It can read only files that the source's paths stand for, and no other file that a checkpoint names."""
    context = world(b"abc\n")
    if reads:
        with pytest.raises(StateError, match="does not exist"):
            FileSource([paths, "/none"], TextFormat()).open_split(f"{path}@7+", None, SourceWorld(MemoryFileSystem()))
        return
    with pytest.raises(StateError, match="the file was not opened"):
        FileSource([paths, "/none"], TextFormat()).open_split(path, None, context)


def test_listing() -> None:
    """Files, directories and patterns, in order; hidden names are left out unless they are asked for."""
    fs = file_system(
        {f"/d/{name}": b"" for name in ("b.csv", "a.csv", "sub/c.csv", "sub/.x/d.csv", "_tmp", ".hidden", "e.txt")}
    )
    place = SourceWorld(fs)

    def listed(*paths: str) -> list[str]:
        source = FileSource(paths[0] if len(paths) == 1 else paths, TextFormat())
        return [path.removeprefix("/d/") for path in source.splits(place)]

    assert listed("/d") == ["a.csv", "b.csv", "e.txt", "sub/c.csv"]
    assert listed("/d/*.csv") == ["a.csv", "b.csv"]
    assert listed("/d/*/?.csv") == ["sub/c.csv"]
    assert listed("/d/s*") == ["sub/c.csv"]
    assert listed("/d/.h*") == [".hidden"]
    assert listed("/d/e.txt", "/d/b.csv") == ["e.txt", "b.csv"]
    assert listed("/d/_tmp") == ["_tmp"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("/d/none", "no input file at '/d/none'"),
        ("/d/*.json", r"no input file at '/d/\*.json'"),
        (["/d/a", "/d"], "file '/d/a' would be read twice, through '/d/a' and '/d'"),
        (["/d/a", "/d/./a"], r"file '/d/\./a' would be read twice"),
        ([], "a FileSource needs at least one path"),
        ("", "paths of a FileSource are texts such as .*, and '' is none"),
        (["/d/a", 3], "and 3 is none"),
        (Path("/d"), "and PosixPath.* is none"),
    ],
)
def test_bad_listings(paths: Any, message: str) -> None:
    """A path without files and a file named twice are refused."""
    place = SourceWorld(file_system({"/d/a": b""}))

    with pytest.raises(ConfigurationError, match=message):
        FileSource(paths, TextFormat()).splits(place)


def test_unknown_option_is_refused() -> None:
    """There are three things to do with a malformed line."""
    with pytest.raises(ConfigurationError, match="on_malformed must be 'fail', 'skip' or 'side_output', got 'log'"):
        FileSource(PATH, TextFormat(), on_malformed="log")  # type: ignore[arg-type]


def test_options_without_effect_are_refused() -> None:
    """An assigner where nothing is assigned, and malformed lines in a format without lines."""
    with pytest.raises(ConfigurationError, match="assigner='fifo' needs assignment='pull'"):
        FileSource(PATH, TextFormat(), assigner="fifo")
    with pytest.raises(ConfigurationError, match="on_malformed='skip' is for formats of lines"):
        FileSource(PATH, FixedLengthFormat(4), on_malformed="skip")


@pytest.mark.parametrize("format", ["csv", TextFormat, JsonLinesRowFormat()])
def test_a_format_that_cannot_read_is_refused(format: Any) -> None:
    """A name, a class, or a format of sinks is refused, and the error lists the formats of a source."""
    with pytest.raises(ConfigurationError, match=r"^format is .*use CsvFormat"):
        FileSource(PATH, format)


def test_files_through_the_source_operator() -> None:
    """Several files are splits of one source; a restore in the middle loses and repeats nothing."""
    fs = file_system({f"/in/{name}": csv_content(10 + 5 * at) for at, name in enumerate("abc")})
    source = FileSource("/in", CSV)
    undisturbed = read_all(Harness(SourceOperator(source, records_per_turn=4), fs=fs))
    whole = [value for batch in undisturbed for value in batch.values]
    assert len(whole) == 45
    for reads in range(0, 50, 7):
        first = Harness(SourceOperator(source, records_per_turn=4), fs=fs)
        operator = first.operator
        assert isinstance(operator, SourceOperator)
        for _ in range(reads):
            operator.emit_next(1)
        second = Harness(SourceOperator(source, records_per_turn=4), fs=fs, restored=first.snapshot(1))
        rest = [value for batch in read_all(second) for value in batch.values]

        assert first.take_values() + rest == whole


def test_json_lines_file() -> None:
    """A JSON Lines file with blank lines and a bad one."""
    place = world(b'{"a":1}\n\n[2]\nnull x\n"end"')

    assert drain(FileSource(PATH, JsonLinesFormat(), on_malformed="skip").open_split(PATH, None, place)) == [
        {"a": 1},
        [2],
        "end",
    ]
