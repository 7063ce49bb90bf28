"""The replay as a command: its output, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.compare import Comparison, MalformedVector, check_fields, plain, same
from tests.conformance.complaints import check_each
from tests.conformance.runner import Verdict, replay

GOOD = {"name": "good", "kind": "round_up_to_power_of_two", "input": {"x": 3}, "expect": {"result": 4}}
BAD = {"name": "bad", "kind": "round_up_to_power_of_two", "input": {"x": 3}, "expect": {"result": 5}}


def written(tmp_path: Path, content: Any, name: str = "vectors.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *files: str) -> tuple[int, list[str]]:
    code = main(list(files))
    return code, capsys.readouterr().out.splitlines()


def test_success_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When all agree only the numbers are printed, and the exit code is 0."""
    assert run(capsys, written(tmp_path, {"vectors": [GOOD]})) == (0, ["1 passed, 0 failed, 0 skipped"])


def test_a_failure_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, field, what was expected and observed."""
    assert run(capsys, written(tmp_path, {"vectors": [GOOD, BAD]})) == (
        1,
        ["FAIL bad: result expected 5 observed 4", "1 passed, 1 failed, 0 skipped"],
    )


def test_a_file_may_be_a_list_of_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The object around the list holds no field that is needed."""
    assert run(capsys, written(tmp_path, [GOOD, GOOD | {"name": "other"}]))[1] == ["2 passed, 0 failed, 0 skipped"]


def test_two_vectors_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict would not tell which of the two it is about; the same name in another file is another vector."""
    twice, once = written(tmp_path, [GOOD, GOOD], "twice.json"), written(tmp_path, [GOOD], "once.json")

    assert run(capsys, twice) == (
        1,
        ["FAIL good: twice.json holds more than one vector of this name", "1 passed, 1 failed, 0 skipped"],
    )
    assert run(capsys, once, once)[0] == 0


def test_several_files_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read is one failure among the others."""
    files = written(tmp_path, {"vectors": [GOOD]}, "a.json"), str(tmp_path / "none.json")

    code, lines = run(capsys, *files)

    assert code == 1
    assert lines[0].startswith("FAIL none.json: ")
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "is not JSON"),
        ("\udc80".encode("utf-8", "surrogateescape"), "cannot be read"),
        ([], "holds no vectors"),
        ("", "is not JSON"),
        ("null", "holds no vectors"),
        ('"vectors"', "holds no vectors"),
        ([[GOOD]], "a vector is an object, not list"),
        ({"vectors": []}, "holds no vectors"),
        ({"vectors": {}}, "holds no vectors"),
        ({"vectors": [3]}, "a vector is an object, not int"),
        ({"vectors": [{"name": "x"}]}, "neither a kind nor a mode"),
        ({"vectors": [{"name": "x", "kind": "unheard of"}]}, "unknown kind 'unheard of'"),
        ({"vectors": [{"name": "x", "kind": "acker and more"}]}, "unknown kind"),
        ({"vectors": [GOOD | {"input": {"x": "three"}}]}, "TypeError"),
        ({"vectors": [GOOD | {"kind": 3}]}, "unknown kind 3"),
        ({"vectors": [GOOD | {"kind": []}]}, "unknown kind []"),
        ({"vectors": [GOOD | {"input": [3]}]}, "input must be an object, but it is list"),
        ({"vectors": [GOOD | {"expect": None}]}, "expect must be an object, but it is NoneType"),
        ({"vectors": [GOOD | {"expect": {}}]}, "nothing would be compared"),
        ({"vectors": [GOOD | {"input": {}}]}, "something that is needed is missing: 'x'"),
        ({"vectors": [{"name": "x", "mode": "aligned", "expect": {"triggered": []}}]}, "input must be a list"),
    ],
)
def test_whatever_is_not_understood_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, said: str
) -> None:
    """Damaged files, unknown kinds and errors on the way are failures with a reason, in one line."""
    if isinstance(content, bytes):
        path = tmp_path / "vectors.json"
        path.write_bytes(content)
        file = str(path)
    else:
        file = written(tmp_path, content)

    code, lines = run(capsys, file)

    assert code == 1
    assert len(lines) == 2
    assert said in lines[0]
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_directory_is_no_file_of_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is reported like any other."""
    code, lines = run(capsys, str(tmp_path))

    assert code == 1
    assert "cannot be read" in lines[0]


def test_no_argument_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A call without vectors is not a success."""
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_barrier_vector_goes_to_the_barrier_replay() -> None:
    """A vector with a mode is replayed by the barrier handlers; a damaged one fails."""
    data = Path(__file__).parent / "data" / "barrier.json"
    vector = json.loads(data.read_text(encoding="utf-8"))["vectors"][0]
    assert replay(vector).verdict is Verdict.PASSED

    del vector["input"]
    assert replay(vector).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("expected", "observed"),
    [(True, 1), (0, False), (None, 0), ([1], [1, 1]), ({"a": 1}, {"b": 1}), ({"a": 1}, {}), ([], {}), ("1", 1)],
)
def test_comparison_is_strict(expected: Any, observed: Any) -> None:
    """Values of different types are different, even where Python takes them for equal."""
    assert not same(expected, observed)
    assert not same(observed, expected)


def test_comparison_takes_tuples_and_number_keys_as_a_file_would_have_them() -> None:
    """The engine's values are first converted to the form of a file."""
    assert plain({1: (2, {3: None})}) == {"1": [2, {"3": None}]}
    comparison = Comparison()
    comparison.field("f", [[2, 1]], ((2, 1),))
    comparison.field("s", ["b", "a", "a"], ("a", "b", "a"), as_set=True)
    assert comparison.finish() == []
    comparison.field("s", ["a", "a"], ["a"], as_set=True)
    assert comparison.finish() == ["s expected ['a', 'a'] observed ['a']"]


def test_unknown_fields_are_named() -> None:
    """The message names them and their place."""
    with pytest.raises(MalformedVector, match=r"^input has unknown fields: b, c$"):
        check_fields({"a": 1, "c": 1, "b": 1}, {"a"}, "input")


def test_a_check_of_many_vectors_tells_everything_it_finds() -> None:
    """Each complaint names its vector, and an error in one vector does not hide those of the next."""

    def check(vector: dict[str, Any]) -> list[str]:
        return [f"{field} is wrong" for field in vector["expect"] if vector["expect"][field] != 4]

    check_each([GOOD], check)
    with pytest.raises(pytest.fail.Exception, match=r"^empty: KeyError: 'expect'\nbad: result is wrong$"):
        check_each([GOOD, {"name": "empty"}, BAD], check)
