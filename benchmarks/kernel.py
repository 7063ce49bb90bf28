"""The discrete-event kernel beside SimPy, the usual simulator for Python, on the same two models.

``chain``: a hundred processes in a row; each waits for its predecessor and then passes on, over and over, everything
at one instant. ``timeouts``: a hundred processes, each sleeping a time of its own over and over. SimPy's processes are
generators and its events objects; ours are tuples that name a method, so that a pending simulation can be copied.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.measure import Result, Trial, interleaved, now, per_second
from engine.runtime.kernel import Kernel

_PROCESSES = 100


def measure(quick: bool) -> list[Result]:
    """Events per second of the kernel over those of SimPy."""
    if find_spec("simpy") is None:
        print("kernel: SimPy is not installed, so there is nothing to compare with (extra: bench)", file=sys.stderr)
        return []
    repeats, rounds = (200, 3) if quick else (2_000, 5)
    models: dict[str, tuple[Trial, Trial]] = {
        "chain": (partial(_time_simpy_chain, repeats), partial(_time_chain, repeats)),
        "timeouts": (partial(_time_simpy_timeouts, repeats), partial(_time_timeouts, repeats)),
    }
    results = []
    for name, (simpy_trial, own_trial) in models.items():
        (pairs,) = interleaved(simpy_trial, {name: own_trial}, rounds).values()
        details = {"events_per_s": per_second(_PROCESSES * repeats, pairs.seconds)}
        case = f"kernel, {name} of {_PROCESSES} processes"
        results.append(Result(case, "× SimPy", pairs.speed_ratios, None, details))
    return results


# --- ours -----------------------------------------------------------------------------------------------------


class _Link:
    __slots__ = ("kernel", "name", "successor")

    def __init__(self, kernel: Kernel, position: int) -> None:
        self.kernel = kernel
        self.name = f"link {position}"
        self.successor: Any = None

    def pass_on(self, _payload: None) -> None:
        self.kernel.schedule(self.kernel.now_ns, "pass_on", self.successor)


class _End:
    """Behind the last link: starts the next lap."""

    def __init__(self, kernel: Kernel, laps: int) -> None:
        self.kernel = kernel
        self.name = "end"
        self.laps = laps
        self.first: Any = None

    def pass_on(self, _payload: None) -> None:
        if self.laps:
            self.laps -= 1
            self.kernel.schedule(self.kernel.now_ns, "pass_on", self.first)


def _time_chain(laps: int) -> float:
    kernel = Kernel()
    links = [_Link(kernel, position) for position in range(_PROCESSES)]
    end = _End(kernel, laps)
    for link, successor in zip(links, [*links[1:], end], strict=True):
        link.successor = successor
    end.first = links[0]
    kernel.schedule(kernel.now_ns, "pass_on", end)
    start = now()
    kernel.run()
    seconds = now() - start
    assert kernel.executed == laps * (_PROCESSES + 1) + 1, kernel.executed
    return seconds


class _Sleeper:
    __slots__ = ("delay_ns", "kernel", "left", "name")

    def __init__(self, kernel: Kernel, position: int, times: int) -> None:
        self.kernel = kernel
        self.name = f"sleeper {position}"
        self.delay_ns = 1_000 + 7 * position
        self.left = times

    def tick(self, _payload: None) -> None:
        if self.left:
            self.left -= 1
            self.kernel.schedule(self.kernel.now_ns + self.delay_ns, "tick", self)


def _time_timeouts(times: int) -> float:
    kernel = Kernel()
    for position in range(_PROCESSES):
        kernel.schedule(kernel.now_ns, "tick", _Sleeper(kernel, position, times))
    start = now()
    kernel.run()
    seconds = now() - start
    assert kernel.executed == (times + 1) * _PROCESSES, kernel.executed
    return seconds


# --- SimPy ----------------------------------------------------------------------------------------------------


def _time_simpy_chain(laps: int) -> float:
    import simpy

    environment = simpy.Environment()
    inboxes = [environment.event() for _ in range(_PROCESSES + 1)]
    done = []

    def link(position: int) -> Generator[Any, Any, None]:
        for _ in range(laps):
            yield inboxes[position]
            inboxes[position] = environment.event()
            inboxes[position + 1].succeed()

    def end() -> Generator[Any, Any, None]:
        for _ in range(laps):
            inboxes[0].succeed()
            yield inboxes[_PROCESSES]
            inboxes[_PROCESSES] = environment.event()
        done.append(True)

    for position in range(_PROCESSES):
        environment.process(link(position))
    environment.process(end())
    start = now()
    environment.run()
    seconds = now() - start
    assert done == [True]
    return seconds


def _time_simpy_timeouts(times: int) -> float:
    import simpy

    environment = simpy.Environment()
    done = []

    def sleeper(position: int) -> Generator[Any, Any, None]:
        delay = 1_000 + 7 * position
        for _ in range(times):
            yield environment.timeout(delay)
        done.append(position)

    for position in range(_PROCESSES):
        environment.process(sleeper(position))
    start = now()
    environment.run()
    seconds = now() - start
    assert len(done) == _PROCESSES
    return seconds
