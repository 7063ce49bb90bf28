"""Tables that fit: columns as wide as their content, in as many tables as the width needs.

Rules:

* A number is never folded and a heading is folded between words only; text may be folded anywhere.
* Columns that do not fit beside the first one go into a further table, which repeats the first column.
* The first column and the text columns share the width that the numbers leave, but none gets more than it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

TABLE_WIDTH = 80
"""Columns of the narrowest usual terminal; tables look the same in wider ones and in log files."""

_GAPS = (2, 1)
"""Spaces between columns, the nicer ones first."""
_LEAST_GAP = _GAPS[-1]
_LEAST_TEXT = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A heading with one cell per row. ``is_text``: left-aligned and foldable; others are numbers."""

    heading: str
    cells: Sequence[str]
    is_text: bool = False

    @property
    def natural(self) -> int:
        """The width at which only the heading is folded."""
        return max((len(text) for text in (*self.heading.split(), *self.cells)), default=1)

    @property
    def least(self) -> int:
        """The width below which it becomes unreadable."""
        longest_word = max((len(word) for word in self.heading.split()), default=1)
        return min(self.natural, max(_LEAST_TEXT, longest_word)) if self.is_text else self.natural


def fitted(
    title: str, columns: Sequence[Column], width: int = TABLE_WIDTH, *, dim_rows: Sequence[int] = ()
) -> list[Group]:
    """The columns as titled tables of at most ``width``, each led by the first column. ``dim_rows`` are printed dim.

    A width in which not even two columns fit is exceeded, instead of folding.
    """
    key, tables = columns[0], []
    for number, part in enumerate(_split(columns, width)):
        named = title if number == 0 else f"{title} (continued)"
        # A title of the table's own would be folded to the width of the table.
        tables.append(Group(Text(named, style="italic"), _table((key, *part), width, dim_rows)))
    return tables


def _split(columns: Sequence[Column], width: int) -> list[list[Column]]:
    key = columns[0]
    parts: list[list[Column]] = [[]]
    used = key.least
    for column in columns[1:]:
        if parts[-1] and used + _LEAST_GAP + column.least > width:
            parts.append([])
            used = key.least
        parts[-1].append(column)
        used += _LEAST_GAP + column.least
    return parts


def _table(columns: Sequence[Column], width: int, dim_rows: Sequence[int]) -> Table:
    gap = next((gap for gap in _GAPS if _total([column.natural for column in columns], gap) <= width), _LEAST_GAP)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        # The box itself puts one space between columns.
        padding=(0, gap - 1, 0, 0),
    )
    for column, column_width in zip(columns, _widths(columns, width, gap), strict=True):
        table.add_column(
            column.heading, width=column_width, justify="left" if column.is_text else "right", overflow="fold"
        )
    for index, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        # As Text: brackets in names are no markup.
        table.add_row(*(Text(cell) for cell in cells), style="dim" if index in dim_rows else None)
    return table


def _widths(columns: Sequence[Column], width: int, gap: int) -> list[int]:
    """Every column gets its least width; the rest goes to the texts, from the left."""
    widths = [column.least for column in columns]
    left = width - _total(widths, gap)
    for index, column in enumerate(columns):
        more = max(0, min(left, column.natural - widths[index]))
        widths[index] += more
        left -= more
    return widths


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)
