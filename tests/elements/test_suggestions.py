"""A suggestion is made only when it is close to what was typed."""

from __future__ import annotations

import pytest

from engine.elements.suggestions import nearest


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("exactlyonce", "exactly-once"),
        ("EXACTLY_ONCE", "exactly-once"),
        ("exactly", "exactly-once"),
        ("cuont[1]", "count[1]"),
        ("reapet", "repeat"),
        ("wordcont.py", "wordcount.py"),
        ("sum", "sums"),
    ],
)
def test_a_slip_of_the_hand_is_recognised(typed: str, known: str) -> None:
    """Letters too many, too few, wrong or swapped; another form of capitals; a beginning."""
    assert nearest(typed, ["something-else", known]) == known


@pytest.mark.parametrize(
    ("typed", "known"), [("visits.py", "sig.py"), ("maps.py", "cups.py"), ("count", "out"), ("cat", "map"), ("a", "bc")]
)
def test_another_word_is_not_suggested(typed: str, known: str) -> None:
    """A shared ending or a few shared letters make no likeness."""
    assert nearest(typed, [known]) is None


def test_the_nearest_is_chosen() -> None:
    """One slip comes before two."""
    assert nearest("joined", ["joints", "joinde", "join"]) == "joinde"
