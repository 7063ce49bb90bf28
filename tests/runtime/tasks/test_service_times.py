"""Service times by law: every record against the recursions of queueing theory, choices, and names that do not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from engine import Batch, ConfigurationError, Job, JobFailedError, Operator, RunResult, SequenceSource
from engine.runtime.config import config_of
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS, ChoiceRecorder
from engine.study import Constant, Exponential, Law, LogNormal, Uniform

ROOM = 10_000_000
"""Records that a channel holds: nothing ever waits for credit."""


class Stopwatch(Operator):
    """Notes when each record has been served; it passes the record on."""

    def __init__(self, into: dict[Any, int]) -> None:
        self._into = into

    def process_batch(self, batch: Batch) -> None:
        for value in batch.values:
            self._into[value] = self.context.processing_time_ns() - START_NS
        self.output.emit(batch)


def tandem(laws: Sequence[Law], records: int, **settings: Any) -> tuple[RunResult, list[dict[Any, int]]]:
    """All records are there at once, and pass one server after the other: when each of them has served each record."""
    job, served = Job("tandem"), [dict[Any, int]() for _ in laws]
    stream = job.source(SequenceSource(0, records), name="numbers")
    for number, into in enumerate(served):
        stream = stream.via(lambda into=into: Stopwatch(into), name=f"server{number}", chain=False)
    stream.collect([], name="out", chain=False)
    service = {f"server{number}": law for number, law in enumerate(laws)}
    settings = {"mode": "none", "channel_capacity": ROOM, "cost": {"source_record": "0s"}, **settings}
    return job.run(service=service, **settings), served


def drawn(result: RunResult, law: Law, server: int, records: int) -> list[int]:
    """The service times of a server, from the recorded choices. One is drawn ahead."""
    if isinstance(law, Constant):
        return [law.quantile_ns(0)] * records
    stream = f"service of server{server}[0]"
    times = [law.quantile_ns(value) for name, value, _ in result.execution.choices.log if name == stream]
    assert len(times) == records + 1
    return times[:records]


def departures(arrivals: Sequence[int], service: Sequence[int]) -> list[int]:
    """Lindley's recursion: a record is served once it is there and the one before has left."""
    found, free = [], 0
    for arrival, time in zip(arrivals, service, strict=True):
        free = max(arrival, free) + time
        found.append(free)
    return found


LAWS: list[Law] = [Exponential("10us"), Constant("8us"), LogNormal("7us", 0.5), Uniform("1us", "19us")]


def test_every_record_leaves_when_the_recursion_says() -> None:
    """Four servers in a row: 0 ns off for each record at each of them."""
    result, served = tandem(LAWS, 300)

    arrivals = [0] * 300
    for server, law in enumerate(LAWS):
        arrivals = departures(arrivals, drawn(result, law, server, 300))
        assert list(served[server].values()) == arrivals


@pytest.mark.parametrize("batch_size", [1, 7, 1_024])
def test_the_size_of_batches_has_no_part_in_it(batch_size: int) -> None:
    """The same choices of service times, and the same times."""
    assert tandem(LAWS, 100, batch_size=batch_size)[1] == tandem(LAWS, 100)[1]


def test_checkpoints_come_between_two_records() -> None:
    """No record is cut, lost or served anew by a barrier, and none is earlier or later for it."""
    plain = tandem(LAWS, 100)[1]
    for mode in ("aligned", "unaligned", "at-least-once"):
        result, served = tandem(LAWS, 100, mode=mode, checkpoint_interval="100us", audit=True)
        assert result.execution.checkpoints.completed >= 2
        assert result.verdict.name == "valid"
        assert served == plain


def test_service_times_are_choices() -> None:
    """A replay makes the same run from the recorded choices; another seed draws others."""
    job, served = Job("replayed"), dict[Any, int]()
    numbers = job.source(SequenceSource(0, 50), name="numbers")
    numbers.via(lambda: Stopwatch(served), name="server", chain=False).collect([])
    result = job.run(service={"server": "exponential:10us"}, seed=1)
    first = dict(served)

    choices = ChoiceRecorder("other", replay=list(result.execution.choices.log))
    config = config_of({"service": {"server": Exponential("10us")}, "seed": "2"})
    Execution(job.plan(), config, choices=choices).run().raise_on_failure()
    assert served == first
    job.run(service={"server": "exponential:10us"}, seed=2)
    assert served != first


def test_operators_of_one_task_take_their_times_together() -> None:
    """Their laws add up; the law of a subtask counts instead of its operator's, and a straggler takes longer."""
    job, served = Job("chained", parallelism=2), dict[Any, int]()
    numbers = job.source(SequenceSource(0, 2), name="numbers", parallelism=1).rebalance()
    numbers.map(lambda n: n, name="one").via(lambda: Stopwatch(served), name="two").collect([])
    job.run(
        service={"one": "3us", "one[1]": "30us", "two": "4us"}, mode="none",
        cost={"source_record": "0s", "record": "1us", "stragglers": {"two[1]": 2}},
    )  # fmt: skip

    assert sorted(served.values()) == [3_000 + 4_000 + 1_000, 2 * (30_000 + 4_000 + 1_000)]


def served_by(service: Any, records: int = 60, **settings: Any) -> tuple[RunResult, dict[Any, int]]:
    """All records are there at once: when one server has served each of them."""
    job, served = Job("by record"), dict[Any, int]()
    numbers = job.source(SequenceSource(0, records), name="numbers")
    numbers.via(lambda: Stopwatch(served), name="server", chain=False).collect([], name="out", chain=False)
    settings = {"mode": "none", "channel_capacity": ROOM, "cost": {"source_record": "0s"}, **settings}
    return job.run(service={"server": service}, **settings), served


def test_a_time_may_depend_on_the_record() -> None:
    """However batches are cut, and whatever barriers come between."""
    expected = list(accumulate(1_000 * (number % 7 + 1) for number in range(60)))
    for form in (lambda number: 1_000 * (number % 7 + 1), lambda number: f"{number % 7 + 1}us"):
        assert list(served_by(form)[1].values()) == expected
    for batch_size in (1, 7):
        assert list(served_by(lambda number: 1_000 * (number % 7 + 1), batch_size=batch_size)[1].values()) == expected
    for mode in ("aligned", "unaligned"):
        result, served = served_by(
            lambda number: 1_000 * (number % 7 + 1), mode=mode, checkpoint_interval="40us", audit=True
        )
        assert list(served.values()) == expected
        assert (result.verdict.name, result.execution.checkpoints.completed >= 1) == ("valid", True)
    assert result.execution.tasks[1].times.busy_ns == expected[-1]


def test_a_law_may_depend_on_the_record() -> None:
    """Large orders take ten times as long on average. Each time is one choice, which a replay makes again."""
    laws = {True: Exponential("100us"), False: Exponential("10us")}

    result, served = served_by(lambda number: laws[number % 3 == 0], cost={"source_record": "0s", "record": "1us"})

    draws = [one.value for one in result.execution.choices.log if one.stream == "service of server[0]"]
    times = [1_000 + laws[number % 3 == 0].quantile_ns(draw) for number, draw in enumerate(draws)]
    assert list(served.values()) == list(accumulate(times))


def test_a_record_that_is_served_again_takes_its_time_again() -> None:
    """After a crash the time goes on with the records since the checkpoint."""
    result, served = served_by(
        lambda number: 1_000 * (number % 7 + 1), mode="unaligned", checkpoint_interval="20us", kills=["server@150us"],
        audit=True, restart="fixed:1:0ms", cost={"source_record": "1us"},
    )  # fmt: skip

    assert (result.verdict.name, result.attempts) == ("valid", 2)
    times = list(served.values())
    # Served before the crash and not again, and after it: in each part a record comes its time after the one before.
    jumps = [n for n in range(1, 60) if times[n] - times[n - 1] != 1_000 * (n % 7 + 1)]
    assert len(jumps) == 1


def test_a_function_of_the_record_and_laws_add_up() -> None:
    """The function is that of the first operator of the task; a straggler takes longer for all of it."""
    job, served = Job("chained"), dict[Any, int]()
    numbers = job.source(SequenceSource(5, 7), name="numbers").rebalance()
    numbers.map(lambda n: -n, name="one").via(lambda: Stopwatch(served), name="two").collect([])
    job.run(
        service={"one": lambda n: n * 1_000, "two": "4us"}, mode="none",
        cost={"source_record": "0s", "record": "1us", "stragglers": {"one": 2}},
    )  # fmt: skip

    assert served == {-5: 2 * (5_000 + 4_000 + 1_000), -6: 2 * (5_000 + 6_000 + 2 * 4_000 + 2 * 1_000)}


def test_a_function_sees_only_what_comes_to_the_task() -> None:
    """An operator within a chain gets its records when their time has begun."""
    job = Job("chained")
    numbers = job.source(SequenceSource(0, 1), name="numbers").rebalance()
    numbers.map(lambda n: n, name="one").map(lambda n: n, name="two").collect([])

    for name in ("two", "two[0]"):
        with pytest.raises(ConfigurationError, match=re.escape(f"service: {name!r} is not the first operator of its")):
            job.run(service={name: len})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: 1 // (3 - n), "raised ZeroDivisionError: integer division or modulo by zero, for the record 3; fix"),
        (lambda n: None if n == 3 else 5, "gave None for the record 3: it is None of type NoneType; write Exponential"),
        (lambda n: -n, "gave -1 for the record 1: value of Constant is -1 ns; it must be from 0"),
        (lambda n: "soon", "gave 'soon' for the record 0: it 'soon' is no law; write one of"),
        (lambda n: 0.5, "gave 0.5 for the record 0: it is 0.5 of type float"),
        (lambda n: Exponential, "for the record 0: it is <class"),
    ],
)
def test_a_function_that_gives_no_time_is_told_with_its_record(function: Any, message: str) -> None:
    """The job fails there."""
    with pytest.raises(JobFailedError, match=f"service function <lambda> .*{message}"):
        served_by(function)


def test_a_class_is_no_function_of_the_record() -> None:
    """It would take each record for the mean."""
    with pytest.raises(ConfigurationError, match=r"service\['server'\] is <class .* write service"):
        served_by(Exponential)


def test_a_run_without_laws_draws_nothing() -> None:
    """Its choices are those of a run that knows no laws; a constant is no choice either."""
    job = Job("plain")
    job.source(SequenceSource(0, 50), name="numbers").map(lambda n: n, name="same", chain=False).collect([])
    constant = job.run(service={"same": "1us"}).execution.choices.log

    assert {one.stream for one in job.run().execution.choices.log} == {one.stream for one in constant} == {"schedule"}


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({"sevrer": "1us"}, "service: there is no operator 'sevrer' in the job; did you mean 'server'?"),
        ({"numbers": "1us"}, "service: 'numbers' is in the task of a source, which takes cost.source_record"),
        ({"server": "soon"}, "service 'soon' is no law"),
        ({"server": 1.5}, r"service\['server'\] is 1.5 of type float; write service\['server'\]="),
        ({"server": "pareto:1ms:1"}, "shape of Pareto is 1.0; it must be above 1"),
    ],
)
def test_laws_that_fit_no_operator_are_refused(service: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    job = Job("refused")
    job.source(SequenceSource(0, 1), name="numbers").map(lambda n: n, name="server", chain=False).collect([])

    with pytest.raises(ConfigurationError, match=message):
        job.run(service=service)


def sojourns(arrival: Law, service: Law, records: int) -> float:
    """Mean time in the second of two servers, whose arrivals are the departures of a saturated first one."""
    _, (arrived, left) = tandem([arrival, service], records)
    return math.fsum(left[value] - at for value, at in arrived.items()) / records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "second_moment"),
    [
        (Exponential("10us"), 2.0),
        (Constant("10us"), 1.0),
        (Uniform("0s", "20us"), 4 / 3),
        (LogNormal(round(10_000 / math.exp(0.125)), 0.5), math.exp(0.25)),
    ],
    ids=["M/M/1", "M/D/1", "M/U/1", "M/LogNormal/1"],
)
def test_v1_the_mean_time_in_a_queue_is_that_of_pollaczek_and_khinchine(service: Law, second_moment: float) -> None:
    """V1: E[T] = E[S] + lambda E[S^2] / (2 (1 - rho)) within 4 % at rho = 0.5; M/M/1: 1 / (mu - lambda) = 20 us."""
    expected = 10_000 + 10_000**2 * second_moment / 20_000 / (2 * 0.5)

    assert sojourns(Exponential("20us"), service, 40_000) == pytest.approx(expected, rel=0.04)


def test_accumulated_times_are_whole() -> None:
    """A single server: the n-th record leaves after the sum of n service times."""
    result, (served,) = tandem([Exponential("10us")], 200)

    assert list(served.values()) == list(accumulate(drawn(result, Exponential("10us"), 0, 200)))
