"""Paths of partitions: what is escaped, and that every written path can be read."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from operators.files.writing import (
    DEFAULT_PARTITION_NAME,
    PartitionPathError,
    escape_path_name,
    extract_partition_spec,
    partition_directory,
    partition_path,
    partition_path as public_partition_path,
    partition_values,
)
from operators.files.writing.partition_names import generate_partition_path, unescape_path_name

NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a b}~ä", "a b}~ä"),
        ("\"#%'*/:=?\\{[]^", "%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E"),
        ("\x00\x01\n\x1f\x7f", "%00%01%0A%1F%7F"),
        ("\x80.-_", "\x80.-_"),
    ],
)
def test_what_is_escaped(text: str, escaped: str) -> None:
    """Control characters and those with a meaning in a path, with two upper-case digits; no others."""
    assert escape_path_name(text) == escaped
    assert unescape_path_name(escaped) == text


@pytest.mark.parametrize("text", ["a%4", "%", "%zz", "%+1", "100%"])
def test_what_is_no_code_stands_for_itself(text: str) -> None:
    """A percent sign that is not followed by two hexadecimal digits is a percent sign."""
    assert unescape_path_name(text) == text


def test_lower_case_codes_are_read() -> None:
    """Another program may have written the path."""
    assert unescape_path_name("a%3ab%2F") == "a:b/"


@given(st.lists(st.tuples(NAMES, NAMES), unique_by=lambda pair: pair[0]))
def test_what_is_generated_is_extracted(spec: list[tuple[str, str]]) -> None:
    """Any names and values come back, in order, whatever stands before the path; each is one directory."""
    path = generate_partition_path(spec)

    assert path.count("/") == len(spec)
    assert extract_partition_spec(path) == spec
    assert extract_partition_spec(f"some/where/{path}part-0-0") == spec


@pytest.mark.parametrize("spec", [[("k", "")], [("", "v")], [("a", "1"), ("b", "")]])
def test_an_empty_name_or_value_is_refused(spec: list[tuple[str, str]]) -> None:
    """It would not be a directory, or readers could not find it."""
    with pytest.raises(PartitionPathError, match="empty"):
        generate_partition_path(spec)


def test_components_that_are_no_pairs_are_passed_over() -> None:
    """Only ``key=value`` counts; of several equals signs the last one divides, and a pair needs both sides."""
    assert extract_partition_spec("/warehouse/t/a=1/x/=2/b=/c=d=3/part-0") == [("a", "1"), ("c=d", "3")]
    assert extract_partition_spec("a=1/b=2/a=3") == [("a", "3"), ("b", "2")]


def test_values_that_are_null_or_empty_have_a_name() -> None:
    """They go to the default partition, and are read back as null."""
    directory = partition_directory(("day", "hour"), (None, ""))
    assert directory == f"day={DEFAULT_PARTITION_NAME}/hour={DEFAULT_PARTITION_NAME}"
    assert partition_values(directory, ("hour", "day")) == [None, None]
    assert partition_directory(("day",), (None,), "none") == "day=none"
    assert partition_values("day=none/x=1", ("x", "day"), "none") == ["1", None]


def test_values_of_a_path_that_lacks_a_column() -> None:
    """The error names the column and what the path should look like."""
    with pytest.raises(PartitionPathError, match=r"says nothing of 'hour'\n.*day=\.\.\./hour=\.\.\."):
        partition_values("day=1", ("day", "hour"))


def test_the_public_helper() -> None:
    """The function that bucket functions use is this one."""
    assert public_partition_path is partition_path
    assert partition_path(year=2013, day=1, who=None) == f"year=2013/day=1/who={DEFAULT_PARTITION_NAME}"


def test_a_lone_surrogate_is_refused_with_its_column() -> None:
    """No path can contain one; the error names the column and the value."""
    with pytest.raises(PartitionPathError, match=r"partition column 'day' is 'a\\ud800b'; a lone surrogate"):
        public_partition_path(hour=1, day="a\ud800b")
