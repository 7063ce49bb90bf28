"""Tables fit into the given width, and do not fold cells that must not be folded."""

from __future__ import annotations

import io

from hypothesis import given, strategies as st
from rich.console import Console
from rich.table import Table

from engine.report.text_tables import Column, fitted


def lines_of(title: str, columns: list[Column], width: int) -> list[str]:
    """The printed text, on a console that is wide enough for anything, without trailing spaces."""
    file = io.StringIO()
    Console(file=file, width=1_000).print(*fitted(title, columns, width), sep="\n")
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_narrow_table_is_as_wide_as_its_content() -> None:
    """Two spaces between columns where there is room; numbers to the right, text to the left."""
    columns = [Column("Task", ["a", "long name"], is_text=True), Column("Records in", ["1,000", "2"])]

    assert lines_of("Tasks", columns, 80) == [
        "Tasks",
        "           Records",
        "Task            in",
        "──────────────────",
        "a            1,000",
        "long name        2",
    ]


def test_columns_move_closer_before_they_move_on() -> None:
    """One space is enough; a column that does not fit goes into a further table with the first one."""
    columns = [Column("ID", ["1"]), Column("First", ["12345"]), Column("Second", ["123456"])]

    assert lines_of("T", columns, 15)[1] == "ID First Second"
    assert lines_of("T", columns, 17)[1] == "ID  First  Second"
    assert lines_of("T", columns, 14) == [
        "T", "ID  First", "─────────", " 1  12345", "T (continued)", "ID  Second", "──────────", " 1  123456",
    ]  # fmt: skip


def test_text_is_folded_and_numbers_are_not() -> None:
    """The name gives way, down to a dozen characters; the number keeps its line."""
    columns = [Column("Task", ["a name of many words"], is_text=True), Column("N", ["1,234,567"])]

    assert lines_of("T", columns, 25)[2:] == ["─" * 25, "a name of many  1,234,567", "words"]


def test_brackets_are_no_markup() -> None:
    """`sum[0]` is printed as it is, in titles too; rich would take the brackets for a style."""
    lines = lines_of("of sum[bold]", [Column("Task", ["sum[0]", "[red]"], is_text=True), Column("N", ["1", "2"])], 80)

    assert [lines[0], lines[3].split()[0], lines[4].split()[0]] == ["of sum[bold]", "sum[0]", "[red]"]


def test_dim_rows_are_styled_only() -> None:
    """They print like others where there are no colours, and dim where there are."""
    columns = [Column("A", ["x", "y"], is_text=True), Column("B", ["1", "2"])]
    (group,) = fitted("T", columns, dim_rows=[1])
    _, table = group.renderables

    assert isinstance(table, Table)
    assert [row.style for row in table.rows] == [None, "dim"]


WORDS = st.text("abc", min_size=1, max_size=9)
CELLS = st.lists(st.integers(0, 10**9).map(str), min_size=2, max_size=2)
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), min_size=2, max_size=2)
HEADINGS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
COLUMNS = st.lists(
    st.one_of(
        st.builds(Column, HEADINGS, CELLS),
        st.builds(lambda heading, cells: Column(heading, cells, is_text=True), HEADINGS, TEXTS),
    ),
    min_size=2,
    max_size=12,
)


@given(COLUMNS, st.integers(25, 100))
def test_any_table_fits_and_loses_nothing(columns: list[Column], width: int) -> None:
    """No line is wider than asked for, every number is whole, every column is there."""
    lines = lines_of("", columns, width)
    words = " ".join(lines).split()

    assert max(map(len, lines)) <= width
    for column in columns:
        if not column.is_text:
            assert all(cell in words for cell in column.cells)
        assert all(word in words for word in column.heading.split())
