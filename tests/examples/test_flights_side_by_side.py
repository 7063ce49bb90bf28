"""The processes beside the demonstration: what they print and return comes back, and so do their failures."""

from __future__ import annotations

import os
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from examples.flights_side_by_side import Receive, SideProcess, SideProcessError


def test_it_is_told_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the telling; what it prints shows when it is asked."""

    def work(receive: Receive) -> Any:
        print("begun")
        return [receive(), receive()]

    side = SideProcess("side", work)
    side.tell(1)
    side.tell({"a": 2})

    assert side.result() == [1, {"a": 2}]
    assert capsys.readouterr().out == "begun\n"


def test_its_failure_is_raised_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Our own errors by their message, others with their trace; what was printed before shows."""

    def refuse(receive: Receive) -> None:
        print("begun")
        raise ConfigurationError("no such mode")

    with pytest.raises(SideProcessError, match=r"^side: no such mode$"):
        SideProcess("side", refuse).result()
    assert capsys.readouterr().out == "begun\n"
    with pytest.raises(SideProcessError, match="ZeroDivisionError"):
        SideProcess("side", lambda _: 1 // 0).result()


def test_its_death_is_told() -> None:
    """Telling a dead process something is no error; waiting for its result is."""

    def die(receive: Receive) -> None:
        receive()
        os._exit(7)

    side = SideProcess("side", die)
    side.tell(1)
    with pytest.raises(SideProcessError, match=r"side: its process died \(exit code 7\)"):
        side.result()
    side.tell(2)


def test_its_death_is_told_if_it_has_not_listened() -> None:
    """What it was told and has not read makes no other error of it."""
    gate, opened = os.pipe()

    def die(receive: Receive) -> None:
        os.read(gate, 1)
        os._exit(7)

    side = SideProcess("side", die)
    side.tell(1)
    os.write(opened, b".")
    with pytest.raises(SideProcessError, match=r"side: its process died \(exit code 7\)"):
        side.result()
    os.close(gate)
    os.close(opened)
