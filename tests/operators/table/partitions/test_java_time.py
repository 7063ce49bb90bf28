"""Patterns of Java's letters: what they read and what they refuse. The expectations are those of ``java.time``."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, strategies as st

from operators.table.partitions.java_time import JavaTimePattern, PatternError, TextError


def read(pattern: str, text: str) -> str:
    date, time = JavaTimePattern(pattern).parse(text)
    return date.isoformat() if time is None else time.isoformat()


@pytest.mark.parametrize(
    ("pattern", "text", "result"),
    [
        ("yyyyMMdd", "20200503", "2020-05-03"),
        ("yyyyMMddHH", "2020050307", "2020-05-03T07:00:00"),
        ("yyyy-MM-dd HH:mm:ss", "2020-05-03 07:08:09", "2020-05-03T07:08:09"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2020-05-03T07:08:09.120", "2020-05-03T07:08:09.120000"),
        ("y-M-d", "2020-5-3", "2020-05-03"),
        ("d.M.yyyy H", "3.5.2020 7", "2020-05-03T07:00:00"),
        ("yy-MM-dd", "20-05-03", "2020-05-03"),
        ("uuuu/DDD", "2020/060", "2020-02-29"),
        ("MM-dd-yyyy", "05-03-2020", "2020-05-03"),
        ("dd MMM yyyy", "03 May 2020", "2020-05-03"),
        ("EEEE, MMMM d, yyyy h a", "Sunday, May 3, 2020 12 AM", "2020-05-03T00:00:00"),
        ("yyyy-MM-dd h:mm a", "2020-05-03 1:30 PM", "2020-05-03T13:30:00"),
        ("yyyy-MM-dd kk", "2020-05-03 24", "2020-05-03T00:00:00"),
        ("yyyy-MM-dd[ HH[:mm]]", "2020-05-03", "2020-05-03"),
        ("yyyy-MM-dd[ HH[:mm]]", "2020-05-03 07", "2020-05-03T07:00:00"),
        ("yyyy-MM-dd[ HH[:mm", "2020-05-03 07:08", "2020-05-03T07:08:00"),
        ("''yyyy''-MM-dd 'o''clock'", "'2020'-05-03 o'clock", "2020-05-03"),
        ("yyyy-MM-dd HH", "2020-05-03 24", "2020-05-04T00:00:00"),
        ("yyyy-MM-dd", "2021-04-31", "2021-04-30"),
        ("yyyy-MM-dd", "2021-02-31", "2021-02-28"),
        ("yyyy-MM-dd", "9999-12-31", "9999-12-31"),
        ("yyyy-MM-dd mm", "2020-05-03 08", "2020-05-03"),
        ("yyyy-MM-dd A", "2020-05-03 3600000", "2020-05-03T01:00:00"),
    ],
)
def test_what_a_pattern_reads(pattern: str, text: str, result: str) -> None:
    """Widths, adjacent numbers, names, quotes and optional parts, as Java resolves them by default."""
    assert read(pattern, text) == result


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMdd", "120200503"),
        ("yyyyMMdd", "2020-05-03"),
        ("yyyy-MM-dd", "2020-5-3"),
        ("yyyy-MM-dd", "20200-05-03"),
        ("yyyy-MM-dd", "2020-05-03 "),
        ("yyyy-MM-dd", "2020-13-03"),
        ("yyyy-MM-dd", "2020-00-03"),
        ("yyyy-MM-dd", "2020-05-32"),
        ("yyyy-MM-dd", "0000-05-03"),
        ("yyyy-MM-dd HH:mm", "2020-05-03 24:01"),
        ("yyyy-MM-dd HH", "2020-05-03 25"),
        ("yyyy-DDD", "2021-366"),
        ("HH:mm", "07:08"),
        ("yyyy-MM", "2020-05"),
        ("E yyyy-MM-dd", "Mon 2020-05-03"),
        ("yyyy-MM-dd MM", "2020-05-03 06"),
        ("yyyy-MM-dd", "２０２０-05-03"),
    ],
)
def test_what_a_pattern_refuses(pattern: str, text: str) -> None:
    """Other widths, other signs, days that do not exist, fields that contradict each other, and texts without a day."""
    with pytest.raises(TextError):
        read(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("yyyy-MM-dd}", "reserved"),
        ("yyyy]", "without"),
        ("yyyy'T", "does not end"),
        ("yyyyBdd", "letter 'B'"),
        ("ddd", "too many letters"),
        ("SSSSSSSSSS", "too many letters"),
        ("aa", "too many letters"),
        ("MMMMM", "too many letters"),
    ],
)
def test_patterns_that_mean_nothing(pattern: str, why: str) -> None:
    """The pattern itself is wrong, and the message says where."""
    with pytest.raises(PatternError, match=why):
        JavaTimePattern(pattern)


@given(st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 31)))
def test_every_time_comes_back(time: datetime.datetime) -> None:
    """What is written with all fields is read as it was, with separators and without."""
    time = time.replace(microsecond=time.microsecond // 1000 * 1000)
    text = time.strftime("%m/%d/%H %M:%S.") + f"{time.microsecond // 1000:03d} {time.year:04d}"
    assert read("MM/dd/HH mm:ss.SSS yyyy", text) == time.isoformat()
    packed = f"{time.year:04d}" + time.strftime("%m%d%H%M%S") + f"{time.microsecond // 1000:03d}"
    assert read("yyyyMMddHHmmssSSS", packed) == time.isoformat()


@given(st.text("0123456789-: Tabc%", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    """There is no third way."""
    for pattern in ("yyyyMMdd", "y-M-d[ H:m]", "yy-D"):
        try:
            read(pattern, text)
        except TextError:
            continue
