"""The parts of the command line alone: options, descriptor, run directories, values as JSON, errors as text."""

from __future__ import annotations

import datetime
import decimal
import json
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.restore import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from engine.cli.runs.directory import claim_directory, next_run_directory, write_report
from engine.cli.settings import RunOptions, parse_params
from engine.cli.settings.restarts import FORMS, parse_restart
from engine.cli.shell import EXIT_CODES, exit_code_of_failure, failure_text
from engine.elements import errors
from engine.elements.errors import ConfigurationError, JobFailedError, StorageError, UserFunctionError
from engine.runtime.config import CheckpointInterval, RunConfig
from state_backends.base import CorruptStateError, MissingStateError, StorageInUseError
from state_backends.codec import StateCodec, TypeRegistry, inspecting_codec, plain, shown
from state_backends.codec.plain_values import InspectingRegistry, UnregisteredValue
from state_backends.codec.registry import type_mark
from state_backends.files import LocalFileSystem

# --- options ---


def test_options_left_out_are_the_engines_defaults() -> None:
    """The command line has no defaults of its own beside seed and mode."""
    assert RunOptions().to_config() == RunConfig()


def test_options_become_configuration() -> None:
    """Each in its unit."""
    options = RunOptions(
        seed="s", mode="at-least-once", batch_size=7, checkpoint_interval="10rec", checkpoint_timeout="2s",
        min_pause="3ms", retain=2, tolerable_failures=1, restart="fixed:2:5ms",
    )  # fmt: skip
    config = options.to_config(allow_non_restored_state=True)

    assert config == RunConfig(
        seed="s", mode="at-least-once", batch_size=7, checkpoint_interval=CheckpointInterval(records=10),
        checkpoint_timeout_ns=2_000_000_000, min_pause_ns=3_000_000, retained=2, tolerable_failures=1,
        restart=FixedDelayRestart(2, 5_000_000), allow_non_restored_state=True,
    )  # fmt: skip
    assert RunOptions(checkpoint_interval="none").to_config().checkpoint_interval is None


def test_options_survive_the_descriptor_and_can_be_typed_again() -> None:
    """As plain data and as arguments; only what is not the default is typed."""
    options = RunOptions(seed="7", retain=3, checkpoint_interval="10rec")

    assert RunOptions.from_dict(json.loads(json.dumps(options.as_dict())), "x") == options
    assert options.as_arguments() == ["--seed", "7", "--checkpoint-interval", "10rec", "--retain", "3"]
    assert RunOptions().as_arguments() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fixed", "attempts must be a whole number; write fixed:ATTEMPTS:DELAY, for instance fixed:3:10ms"),
        ("fixed:3", "the delay is missing; write fixed:ATTEMPTS:DELAY"),
        ("fixed::1ms", "attempts is empty; write fixed:"),
        ("fixed:x:1ms", "attempts must be a whole number, not 'x'"),
        ("fixed:-1:1ms", "not '-1'"),
        ("fixed:1:1ms:2", "fixed takes at most 2 settings, and these are 3"),
        ("fixed:3:soon", "the delay of restart 'fixed:3:soon', 'soon' is not a time"),
        ("none:1", "none takes at most 0 settings"),
        ("exponential:3:1ms", "the initial delay of restart 'exponential:3:1ms', '3' is not a time"),
        ("exponential:1s:1ms", "restart max_ns is 1000000; it must be at least initial_ns"),
        ("exponential:1ms:1s:1", "restart multiplier is 1.0; it must be above 1"),
        ("exponential:1ms:1s:two", "multiplier must be a number, not 'two'; write exponential:INITIAL:MAX:"),
        ("exponential:1ms:1s:2:1m:3", "restart jitter is 3.0; it must be from 0 to 1"),
        ("rate:0", "restart max_failures is 0; it must be 1 or more"),
        ("rate:1:1m:1s:1", "rate takes at most 3 settings, and these are 4"),
        ("exponental:1ms", "no restart strategy: write exponential:INITIAL:MAX"),
        ("often", "no restart strategy: write none; or fixed:ATTEMPTS:DELAY, .*; or exponential:.*; or rate:"),
        ("", "no restart strategy"),
    ],
)
def test_a_wrong_restart_strategy_says_how_it_is_written(text: str, message: str) -> None:
    """What is wrong with it, and the form that was probably meant with an example."""
    with pytest.raises(ConfigurationError, match=message):
        parse_restart(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", NoRestart()),
        ("fixed:0:1ms", FixedDelayRestart(0, 1_000_000)),
        ("exponential", ExponentialDelayRestart()),
        ("exponential:2m", ExponentialDelayRestart(120_000_000_000, 120_000_000_000)),
        (
            "exponential:10ms:1s:2:1m:0.5",
            ExponentialDelayRestart(10_000_000, 1_000_000_000, 2.0, 60_000_000_000, 0.5),
        ),
        ("rate", FailureRateRestart()),
        (" rate:2:1m:10ms ", FailureRateRestart(2, 60_000_000_000, 10_000_000)),
    ],
)
def test_restart_strategies(text: str, expected: object) -> None:
    """All four, with what is left out by default."""
    assert parse_restart(text) == expected


@pytest.mark.parametrize("form", FORMS.values())
def test_the_examples_of_restart_strategies_can_be_typed(form: str) -> None:
    """An error never shows an example that is an error itself."""
    assert parse_restart(form.rpartition("for instance ")[2])


def test_parameters_are_names_with_values() -> None:
    """A value may be empty and may hold an equals sign; a name is given once."""
    assert parse_params(("a=1", "b=", "c=x=y")) == {"a": "1", "b": "", "c": "x=y"}
    for wrong in (("a",), ("=1",), ("a b=1",), ("a=1", "a=2")):
        with pytest.raises(ConfigurationError):
            parse_params(wrong)


# --- run directories ---


def test_numbers_go_on_behind_the_highest(tmp_path: Path) -> None:
    """Deleting an old run frees no number; other files do not matter."""
    root = str(tmp_path)
    first, second = next_run_directory("job", root), next_run_directory("job", root)
    Path(first).rmdir()
    (tmp_path / "job/notes").touch()
    third = next_run_directory("job", root)

    assert [Path(one).name for one in (first, second, third)] == ["1", "2", "3"]
    assert (tmp_path / "job/latest").resolve() == Path(third)


def test_runs_that_start_together_get_different_directories(tmp_path: Path) -> None:
    """Creating the directory is what takes the number."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(next_run_directory("job", str(tmp_path)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(int(Path(one).name) for one in found) == list(range(1, 9))


def test_a_real_directory_called_latest_is_left_alone(tmp_path: Path) -> None:
    """The link is a convenience; nothing is deleted for it."""
    (tmp_path / "job/latest/mine").mkdir(parents=True)
    next_run_directory("job", str(tmp_path))

    assert sorted(one.name for one in (tmp_path / "job").iterdir()) == ["1", "latest"]
    assert (tmp_path / "job/latest/mine").is_dir()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """With its path and the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        claim_directory(str(tmp_path / "file/x"))
    with pytest.raises(StorageError, match="cannot be written"):
        next_run_directory("file", str(tmp_path))
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(str(tmp_path / "file/nowhere"), {})


# --- values as JSON ---

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.decimals(allow_nan=False) | st.timedeltas(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(-5, 5), inner),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_every_state_value_has_a_json_form(value: Any) -> None:
    """Whatever the codec can store can be shown; strict JSON, and as text."""
    decoded = inspecting_codec().decode(StateCodec().encode(value))

    assert json.loads(json.dumps(plain(decoded), allow_nan=False)) == plain(decoded)
    assert isinstance(shown(plain(decoded)), str)


def test_different_values_look_different() -> None:
    """1, 1.0 and True, a list and a tuple, bytes and text: what state keeps apart is shown apart."""
    day = datetime.date(2013, 1, 2)
    alike = [
        1, 1.0, True, "1", b"1", None, "None", [1], (1,), [(1,)], ([1],), {"1": 1}, {1: 1}, {"$tuple": [1]}, [], (), {},
        "", b"", 0.0, -0.0, float("nan"), float("inf"), "nan", decimal.Decimal("1"), decimal.Decimal("1.0"), day,
        datetime.datetime(2013, 1, 2), str(day), datetime.timedelta(1), [1, 0, 0],
    ]  # fmt: skip

    assert len({json.dumps(plain(value)) for value in alike}) == len(alike)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1,), "(1,)"),
        ((1, "a"), "(1, 'a')"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": b"\x01"}, "{'a': b'\\x01'}"),
        ({1: 2.5}, "{1: 2.5}"),
        ({"$tuple": 3}, "{'$tuple': 3}"),
        (float("inf"), "inf"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2013, 1, 2), "2013-01-02"),
        (datetime.timedelta(hours=3), "3:00:00"),
        (UnregisteredValue(40, 2, [1, "x"]), "<type 40 version 2: [1, 'x']>"),
    ],
)
def test_values_are_shown_as_python_writes_them(value: Any, text: str) -> None:
    """People read the text."""
    assert shown(plain(value)) == text


def test_types_of_other_programs_are_kept_as_they_are() -> None:
    """Reading for people needs no registration, and the shared registry learns nothing."""
    program = TypeRegistry()
    program.register_type(40, complex, lambda value: [value.real, value.imag], lambda state, version: complex(*state))
    data = StateCodec(program).encode(complex(1, 2))

    codec = inspecting_codec()
    assert codec.decode(data) == UnregisteredValue(40, 1, [1.0, 2.0])
    assert codec.encode(codec.decode(data)) == data
    assert InspectingRegistry().for_class(complex) is None


def test_types_of_a_newer_weir_are_shown() -> None:
    """The codes that belong to this project are taken as those of programs are."""
    data = msgpack.packb([type_mark(5, 1), 7])

    assert inspecting_codec().decode(data) == UnregisteredValue(5, 1, 7)


# --- errors as text ---


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
    """Nobody would look for his mistake there."""
    with pytest.raises(NotADirectoryError) as caught:
        LocalFileSystem().make_dirs("/dev/null/x")
    refused = StorageError("cannot be written")
    refused.__cause__ = caught.value

    assert "local_filesystem.py" not in failure_text(refused)


def test_a_cause_is_told_once() -> None:
    """What the message says already is not said again; what it does not say is."""
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
