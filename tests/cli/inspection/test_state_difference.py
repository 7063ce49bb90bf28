"""`weir inspect --diff`: the differences between two checkpoints."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import BRISK, SUMS as JOB, Weir


def stored(weir: Weir, directory: str, records: int, *options: str) -> str:
    """Run the sums over so many records; the path of its newest checkpoint."""
    (weir.directory / "sums.py").write_text(JOB)
    places = ("--storage", directory, "--out", f"{directory}-out")
    answer = weir("run", "sums.py", *BRISK, "--param", f"records={records}", *places, *options)
    assert answer.exit_code == 0, answer.stderr
    chosen = max((weir.directory / directory / "sums").glob("chk-*"), key=lambda path: int(path.name[4:]))
    return str(chosen.relative_to(weir.directory))


def test_differences_are_counted_and_shown(weir: Weir, tmp_path: Path) -> None:
    """Two sums of five differ: exit code 1, and both values of each."""
    before, after = stored(weir, "before", 10), stored(weir, "after", 12)

    answer = weir("inspect", before, "--diff", after)

    assert answer.exit_code == 1
    assert "operator reduce, state reduced (reducing): 2 changed" in answer.stdout
    assert "0 = 2 -> 3" in answer.stdout
    assert "1 = 4 -> 6" in answer.stdout
    limited = weir("inspect", before, "--diff", after, "--limit", "1")
    assert "… and 1 more entry; --limit shows more" in limited.stdout


def test_entries_of_one_side_only(weir: Weir) -> None:
    """Keys that the other run has not met are added one way, and removed the other way."""
    few, many = stored(weir, "few", 3), stored(weir, "many", 5)

    (state,) = weir("inspect", few, "--diff", many, "--json").json()["states"]
    assert (state["added"], state["removed"], state["changed"]) == (2, 0, 0)
    assert [(one["change"], one["key"], one["after"]) for one in state["shown"]] == [("added", 4, 5), ("added", 3, 4)]
    backwards = weir("inspect", many, "--diff", few)
    assert "2 removed" in backwards.stdout
    assert "- [" in backwards.stdout


def test_backends_and_parallelisms_make_no_difference(weir: Weir) -> None:
    """The same sums, from Python objects in one subtask and from files of stores in two: exit code 0."""
    heap = stored(weir, "heap", 40)
    lsm = stored(weir, "lsm", 40, "--state-backend", "changelog:lsm", "--snapshot", "incremental", "--parallelism", "2")

    answer = weir("inspect", heap, "--diff", lsm)

    assert answer.exit_code == 0
    assert "the keyed state is the same" in answer.stdout


def test_one_operator_is_compared_and_an_unknown_one_refused(weir: Weir) -> None:
    """--operator chooses one; an operator that neither checkpoint has is refused."""
    before, after = stored(weir, "before", 10), stored(weir, "after", 12)

    assert weir("inspect", before, "--diff", after, "--operator", "out").exit_code == 0
    assert weir("inspect", before, "--diff", after, "--operator", "reduce").exit_code == 1
    unknown = weir("inspect", before, "--diff", after, "--operator", "nobody")
    assert unknown.exit_code == weir("inspect", before, "--operator", "nobody").exit_code
    assert "no operator has uid 'nobody'" in unknown.stderr
