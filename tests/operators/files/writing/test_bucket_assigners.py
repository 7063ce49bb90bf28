"""Which bucket a record goes to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import BucketAssigner, BucketContext, DateTimeBucketAssigner
from state_backends.files import MemoryFileSystem
from tests.operators.harness import START_NS, Harness

MOMENT_MS = 1_533_363_082_011
"""2018-08-04, 06:11:22.011 in UTC."""


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("yyyy-MM-dd--HH", "2018-08-04--06"),
        ("'dt='yyyyMMdd", "dt=20180804"),
        ("'year='uuuu/'month='M/'day='d", "year=2018/month=8/day=4"),
        ("yy-D-DDD", "18-216-216"),
        ("EEE EEEE MMM MMMM", "Sat Saturday Aug August"),
        ("h a, hh K k", "6 AM, 06 6 6"),
        ("HH:mm:ss.SSS SSSSSS", "06:11:22.011 011000"),
        ("H'h' m's' 'o''clock' '' ", "6h 11s o'clock ' "),
        ("yyyyyy", "002018"),
    ],
)
def test_patterns_are_javas(format: str, expected: str) -> None:
    """Letters have the meaning that they have in Java's ``DateTimeFormatter``."""
    assert DateTimeBucketAssigner(format).bucket_at(MOMENT_MS) == expected


def test_the_time_zone_is_that_of_the_assigner() -> None:
    """The same instant is another day elsewhere, summer time included; UTC unless said otherwise."""
    assert DateTimeBucketAssigner("yyyy-MM-dd-HH", "America/Los_Angeles").bucket_at(MOMENT_MS) == "2018-08-03-23"
    assert DateTimeBucketAssigner().bucket_at(0) == "1970-01-01--00"


@given(st.integers(-(10**13), 10**14))
def test_fields_are_those_of_the_calendar(time_ms: int) -> None:
    """Any instant, also before 1970, to the millisecond."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%H:%M:%S %d.%m.") + f"{time_ms % 1000:03}"

    assert DateTimeBucketAssigner("HH:mm:ss dd.MM.SSS").bucket_at(time_ms) == moment


@pytest.mark.parametrize("format", ["", "yyyy-'open", "QQ", "yyyy[MM]", "EEEEE", "HHH", "MMMMM", "aa", None])
def test_bad_patterns_are_refused(format: Any) -> None:
    """A pattern without a meaning, or with an unintended one, is an error where the assigner is made."""
    with pytest.raises(ConfigurationError):
        DateTimeBucketAssigner(format)


@pytest.mark.parametrize("time_zone", ["Mars/Olympus", "../etc/passwd", "", None])
def test_bad_time_zones_are_refused(time_zone: Any) -> None:
    """An assigner accepts only names of the tz database."""
    with pytest.raises(ConfigurationError, match="there is no time zone"):
        DateTimeBucketAssigner(time_zone=time_zone)


class ByEverything(BucketAssigner):
    """Shows the values that an assigner gets."""

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        return f"{record}/{context.timestamp_ms}/{context.watermark_ms}/{context.processing_time_ms}"


def committed(spec: FileSink, drive: Any) -> dict[str, list[str]]:
    fs = MemoryFileSystem()
    harness = Harness(spec.create_operator(), fs=fs)
    drive(harness)
    harness.checkpoint(1)
    return read_committed(fs, "/out/rows")


def test_an_assigner_may_look_at_every_clock() -> None:
    """The time of the record, the watermark and the processing time are those of the moment."""

    def drive(harness: Harness) -> None:
        harness.process(["a"], [5])
        harness.watermark(7)
        harness.advance_ms(3)
        harness.process(["b"])

    start_ms = START_NS // 1_000_000
    assert list(committed(FileSink("rows", bucket_assigner=ByEverything()), drive)) == [
        f"a/5/{-(2**63)}/{start_ms}",
        f"b/None/7/{start_ms + 3}",
    ]


def test_records_go_to_the_bucket_of_the_moment_in_which_they_are_written() -> None:
    """Processing time decides, so a batch is in one bucket."""

    def drive(harness: Harness) -> None:
        harness.process([1, 2])
        harness.advance_ms(3_600_000)
        harness.process([3])

    spec = FileSink("rows", bucket_assigner=DateTimeBucketAssigner("HH"))
    assert committed(spec, drive) == {"00": ["1", "2"], "01": ["3"]}


@pytest.mark.parametrize("spec", [
    FileSink("rows", bucket=lambda record: f"_{record}" if record == 3 else "fine"),
    FileSink("rows", bucket=lambda record: "a\ud800" if record == 3 else "fine"),
    FileSink("rows", bucket=lambda record: 7 if record == 3 else "fine"),  # type: ignore[arg-type, return-value]
    FileSink("rows", bucket_assigner=DateTimeBucketAssigner("'_'HH")),
    FileSink("rows", bucket_assigner=BucketAssigner()),
])  # fmt: skip
def test_a_bad_bucket_names_the_record_and_writes_nothing(spec: FileSink) -> None:
    """No record is written even if other records of the batch have good buckets."""
    fs = MemoryFileSystem()
    harness = Harness(spec.create_operator(), fs=fs)

    with pytest.raises(UserFunctionError, match=r"^bucket function of operator 'op' raised") as caught:
        harness.process([3] if spec.bucket is None else [1, 2, 3])
    assert caught.value.record == 3
    assert list(fs.walk_files("/out")) == []


def test_one_thing_says_where_records_go() -> None:
    """A function and an assigner together, or anything else, are refused."""
    with pytest.raises(ConfigurationError, match="both say where records go"):
        FileSink("rows", bucket=str, bucket_assigner=DateTimeBucketAssigner())
    with pytest.raises(ConfigurationError, match="it must be a BucketAssigner"):
        FileSink("rows", bucket_assigner=str)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="it must be a function of the record"):
        FileSink("rows", bucket="day")  # type: ignore[arg-type]
