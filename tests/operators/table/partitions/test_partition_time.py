"""The time of a partition: the source of its text, how it is read, and which instant it is."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from operators.files.writing import DEFAULT_PARTITION_NAME, zone_of
from operators.table.partitions.partition_time import (
    DefaultPartitionTimeExtractor,
    PartitionTimeError,
    local_to_epoch_ms,
)

HOUR_MS = 3_600_000


def extract(text: str, pattern: str | None = None, formatter: str | None = None) -> str:
    return DefaultPartitionTimeExtractor(pattern, formatter).extract(["dt"], [text]).isoformat()


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("2020-05-03", "2020-05-03T00:00:00"),
        ("2020-5-3", "2020-05-03T00:00:00"),
        ("2020-05-03 7:8:9", "2020-05-03T07:08:09"),
        ("2020-05-03 07:08:09.5", "2020-05-03T07:08:09.500000"),
        ("2020-05-03 07:08:09.123456789", "2020-05-03T07:08:09.123456"),
        ("2020-13-01", "2021-01-01T00:00:00"),
        ("2020-00-01", "2019-12-01T00:00:00"),
        ("2021-04-31", "2021-05-01T00:00:00"),
        ("2021-03-00", "2021-02-28T00:00:00"),
        ("2020-12-31 24:00:00", "2021-01-01T00:00:00"),
        ("2020-01-01 23:59:60", "2020-01-02T00:00:00"),
        ("99-1-1", "0099-01-01T00:00:00"),
    ],
)
def test_the_lenient_default(text: str, result: str) -> None:
    """One or two digits, with or without a time of day; values that are too large roll over."""
    assert extract(text) == result


@pytest.mark.parametrize(
    "text",
    ["", "not-a-date", "2020-05", "2020-05-03T07:08:09", "2020-05-03 07:08", "2020-05-03  07:08:09",
     "2020-005-03", "+2020-05-03", "2020-05-03 07:08:09.", "12020-05-03", "0000-00-01"],
)  # fmt: skip
def test_what_names_no_time(text: str) -> None:
    """Any other text is an error, and so are years that no date can have."""
    with pytest.raises(PartitionTimeError):
        extract(text)


def test_the_first_value_counts_without_a_pattern() -> None:
    """The other columns may be anything."""
    extractor = DefaultPartitionTimeExtractor()
    assert extractor.extract(["dt", "x"], ["2020-05-03", "zzz"]) == datetime.datetime(2020, 5, 3)


def test_the_pattern_takes_columns_in_their_order_and_knows_no_words() -> None:
    """``$d`` is replaced inside ``$dh``, because ``d`` comes first; the other way round it is not."""
    extractor = DefaultPartitionTimeExtractor("$d $dh:00:00")
    with pytest.raises(PartitionTimeError):
        extractor.extract(["d", "dh"], ["2020-05-03", "7"])
    assert extractor.extract(["dh", "d"], ["7", "2020-05-03"]) == datetime.datetime(2020, 5, 3, 7)


def test_values_in_the_pattern_are_taken_literally() -> None:
    """A dollar or a backslash in a value means nothing."""
    extractor = DefaultPartitionTimeExtractor("$b$a", "yyyy\\MM$dd")
    assert extractor.extract(["a", "b"], ["$03", "2020\\05"]) == datetime.datetime(2020, 5, 3)


def test_a_formatter_reads_a_time_or_a_date() -> None:
    """A date is its midnight."""
    assert extract("20200503", None, "yyyyMMdd") == "2020-05-03T00:00:00"
    assert extract("2020050307", "$dt", "yyyyMMddHH") == "2020-05-03T07:00:00"


def test_the_error_says_what_was_read_and_how() -> None:
    """The error has partition, text, pattern and formatter, and says what to do."""
    extractor = DefaultPartitionTimeExtractor("$day $hour", "yyyy-MM-dd HH")
    with pytest.raises(PartitionTimeError) as told:
        extractor.extract(["day", "x"], ["2020-05-03", "7"])
    message = str(told.value)
    for part in ("day='2020-05-03', x='7'", "'2020-05-03 $hour'", "'$day $hour'", "'yyyy-MM-dd HH'", "fix", "none of"):
        assert part in message, message


def test_the_default_partition_names_no_time() -> None:
    """The error says why."""
    with pytest.raises(PartitionTimeError, match="null or empty"):
        extract(DEFAULT_PARTITION_NAME)


def test_a_bad_formatter_is_refused_at_once() -> None:
    """It is refused before any record."""
    with pytest.raises(ConfigurationError, match="timestamp_formatter"):
        DefaultPartitionTimeExtractor(None, "yyyy-BB")


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("UTC", "2020-05-03T00:00:00", "2020-05-03T00:00:00"),
        ("Asia/Shanghai", "2020-05-03T00:00:00", "2020-05-02T16:00:00"),
        ("GMT+08:00", "2020-05-03T00:00:00", "2020-05-02T16:00:00"),
        ("-0330", "2020-05-03T00:00:00", "2020-05-03T03:30:00"),
        # The hour that is missing in a spring night, and the hour that an autumn night has twice.
        ("Europe/Berlin", "2021-03-28T02:30:00", "2021-03-28T01:30:00"),
        ("Europe/Berlin", "2021-10-31T02:30:00", "2021-10-31T00:30:00"),
    ],
)
def test_local_times_become_instants(zone: str, local: str, utc: str) -> None:
    """The zone's offset at that time decides; of two instants the earlier counts."""
    expected = datetime.datetime.fromisoformat(utc).replace(tzinfo=datetime.UTC).timestamp() * 1000
    assert local_to_epoch_ms(datetime.datetime.fromisoformat(local), zone_of(zone)) == expected


@given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)))
def test_instants_are_exact(local: datetime.datetime) -> None:
    """No rounding through floats: milliseconds, rounded down."""
    days = (local.date() - datetime.date(1970, 1, 1)).days
    of_day = ((local.hour * 60 + local.minute) * 60 + local.second) * 1000 + local.microsecond // 1000
    assert local_to_epoch_ms(local, datetime.UTC) == days * 24 * HOUR_MS + of_day


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "GMT+99:00", "../etc/passwd", "CEST+x"])
def test_unknown_time_zones(name: str) -> None:
    """A clear error that says what a time zone looks like."""
    with pytest.raises(ConfigurationError, match="time zone"):
        zone_of(name)
