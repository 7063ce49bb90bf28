"""Errors as text: exit codes, the user's line, causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cli.shell import EXIT_CODES, exit_code_of_failure, failure_text
from engine.elements import errors
from engine.elements.errors import ConfigurationError, JobFailedError, StorageError, UserFunctionError
from state_backends.base import CorruptStateError, MissingStateError, StorageInUseError
from state_backends.files import LocalFileSystem


def test_each_kind_of_failure_has_its_exit_code() -> None:
    """Errors of the state layer included, though it knows no exit codes."""
    codes = {
        MissingStateError("p"): 16,
        StorageInUseError("p", 1): 16,
        CorruptStateError("p", "x"): 15,
        ConfigurationError("x"): 11,
        AssertionError("x"): 3,
        KeyboardInterrupt(): 130,
    }

    assert [exit_code_of_failure(error) for error in codes] == list(codes.values())


def test_the_table_of_exit_codes_is_complete() -> None:
    """Every error class's code stands in the table that the help prints."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.WeirError)]

    assert len(classes) > 10
    assert [one.__name__ for one in classes if f"{one.exit_code} " not in EXIT_CODES] == []


def test_the_line_to_look_at_is_the_users(tmp_path: Path) -> None:
    """Not the one of the library that raised, and not one of ours."""
    path = str(tmp_path / "mine.py")
    names: dict[str, Any] = {}
    exec(compile("import json\n\ndef parse(text):\n    return json.loads(text)\n", path, "exec"), names)
    with pytest.raises(json.JSONDecodeError) as caught:
        names["parse"]("oops")
    failed = UserFunctionError("map", "function", "oops", 1, caught.value)
    failed.__cause__ = caught.value

    assert f"  at {path}:4, in parse" in failure_text(failed)
    assert "decoder.py" not in failure_text(failed)


def test_the_line_is_not_one_of_ours_that_a_link_leads_to(tmp_path: Path) -> None:
    """The environment that make builds imports the packages through links."""
    (tmp_path / "engine").symlink_to(Path(errors.__file__).resolve().parents[1])
    path = str(tmp_path / "engine/elements/errors.py")
    names: dict[str, Any] = {}
    exec(compile("def check(value):\n    raise ValueError(value)\n", path, "exec"), names)
    with pytest.raises(ValueError, match="oops") as caught:
        names["check"]("oops")
    refused = StorageError("cannot be written")
    refused.__cause__ = caught.value

    assert path not in failure_text(refused)


def test_a_place_that_is_ours_is_not_shown() -> None:
    """A user would not look for a mistake of his own there."""
    with pytest.raises(NotADirectoryError) as caught:
        LocalFileSystem().make_dirs("/dev/null/x")
    refused = StorageError("cannot be written")
    refused.__cause__ = caught.value

    assert "local_filesystem.py" not in failure_text(refused)


def test_a_cause_is_told_once() -> None:
    """The output repeats no cause that the message names already, and adds those that it does not name."""
    cause = UserFunctionError("map", "function", 3, 1, ValueError("x"))
    said = JobFailedError(f"job failed: {cause}")
    said.__cause__ = cause
    unsaid = JobFailedError("job failed")
    unsaid.__cause__ = cause

    assert failure_text(said).count("raised ValueError") == 1
    assert failure_text(unsaid).count("raised ValueError") == 1


def test_an_error_raised_from_itself_is_told_once() -> None:
    """A chain of causes without end has an end here."""
    error = StorageError("outer")
    cause = OSError("disk")
    error.__cause__ = cause
    cause.__cause__ = cause

    assert failure_text(error).startswith("error: outer")
