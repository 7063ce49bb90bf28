"""The process of a case: it leaves its parent alone, and does not outlive it."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any

from engine.study.case_processes import each_in_its_process


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """What is read and what is written."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def test_a_case_does_not_collect_what_its_parent_has_left() -> None:
    """It may be a connection: closed here, it would tell its other end."""

    class Connection:
        itself: Connection

        def __del__(self) -> None:
            if os.getpid() != parent:
                os.write(end, b"closed")

    parent = os.getpid()
    with pipe() as (start, end):
        gc.disable()
        try:
            connection = Connection()
            connection.itself = connection
            del connection
            ((_, (_, error)),) = each_in_its_process(lambda _: bool(gc.collect()), ["case"], 1)
            assert error is None
        finally:
            gc.enable()
        os.set_blocking(start, False)
        with suppress(BlockingIOError):
            assert os.read(start, 10) == b"", "a connection of the parent was closed"


def test_a_case_ends_with_its_parent() -> None:
    """Also if that one is killed, and cannot end it. The pipe is closed when the last process has ended."""
    start, end = os.pipe()

    def case(_: object) -> None:
        os.write(end, b"begun")
        time.sleep(60)

    def parent() -> Any:
        os.close(start)
        return list(each_in_its_process(case, ["case"], 1))

    process = get_context("fork").Process(target=parent)
    process.start()
    os.close(end)
    try:
        assert os.read(start, 10) == b"begun"
        process.kill()
        process.join()
        os.set_blocking(start, False)
        deadline = time.monotonic() + 20
        while _is_open(start):
            assert time.monotonic() < deadline, "the case runs on"
            time.sleep(0.01)
    finally:
        os.close(start)


def _is_open(start: int) -> bool:
    try:
        return os.read(start, 10) != b""
    except BlockingIOError:
        return True
