"""Records that come from outside: on time, also after a failure and in another process; too many of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine import Job
from engine.elements.errors import ConfigurationError, JobFailedError, OverloadError
from engine.observe.trace_events import Send
from engine.study import Arrivals, Constant, Periodic, Poisson, Trace, sweep

SETTINGS: dict[str, Any] = {"checkpoint_interval": "1s", "cost": {"source_record": "0s"}, "batch_size": 16}


class SentBy:
    """When the records of the source were sent, in ns from the start of the run."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self._began_ns: int | None = None

    def __call__(self, event: object) -> None:
        self._began_ns = self._began_ns or event.time_ns  # type: ignore[attr-defined]
        if isinstance(event, Send) and event.channel == 0:
            self.times += [event.time_ns - self._began_ns] * event.records


def job_of(source: Arrivals, into: list[Any]) -> Job:
    job = Job("arrivals")
    job.source(source, name="calls").map(lambda n: n, name="served", chain=False).collect(into)
    return job


def sent(source: Arrivals, into: list[Any], **settings: Any) -> list[int]:
    seen = SentBy()
    job_of(source, into).run(**{**SETTINGS, **settings}, instruments=[seen])
    return seen.times


def test_records_are_sent_when_they_are_due() -> None:
    """Neither earlier nor later, from all splits together."""
    into: list[int] = []
    trace = Arrivals(Trace(["0s", "5ms", "5ms", "2s"]), value=lambda i: 10 * i)
    assert sent(trace, into) == [0, 5_000_000, 5_000_000, 2 * 10**9]
    assert into == [0, 10, 20, 30]
    assert sent(Arrivals(Periodic("2/s"), count=4, splits=3), []) == [0, 500_000_000, 10**9, 1_500_000_000]


def test_the_seed_decides_the_times_and_the_mean_is_that_of_the_rate() -> None:
    """The same seed gives the same times, another one others."""
    times = sent(Arrivals(Poisson("50/s"), count=800), [], seed=1)
    assert times == sent(Arrivals(Poisson("50/s"), count=800), [], seed=1)
    assert times != sent(Arrivals(Poisson("50/s"), count=800), [], seed=2)
    # The last of n arrivals: mean n / rate, standard deviation sqrt(n) / rate.
    assert abs(times[-1] / 1e9 - 16) < 4 * 800**0.5 / 50


def test_records_wait_while_the_job_is_down_and_those_after_them_come_on_time() -> None:
    """A failure at 1.5 s takes the job back to 1 s: what was due by then is sent at once, the rest when it is due."""
    plain = sent(Arrivals(Poisson("20/s"), count=80), [], seed=3)
    into: list[int] = []
    times = sent(
        Arrivals(Poisson("20/s"), count=80), into, seed=3, kills=["served@1500ms"], restart="fixed:3:700ms"
    )
    back_ns = 2_200_000_000
    before = [time for time in plain if time <= 1_500_000_000]
    again = [max(time, back_ns) for time in plain if time > 10**9]
    assert times == before + again
    assert into == list(range(80))
    assert times.count(back_ns) > 10, "a backlog"


def test_without_a_checkpoint_the_beginning_is_still_that_of_the_run() -> None:
    """Times do not count from the second attempt."""
    times = sent(Arrivals(Trace(["0s", "50ms", "2s"])), [], kills=["served@100ms"], restart="fixed:3:1s")
    assert times == [0, 50_000_000, 1_100_000_000, 1_100_000_000, 2 * 10**9]


def test_a_job_that_is_resumed_from_its_storage_goes_on_with_the_same_times(tmp_path: Path) -> None:
    """Another run of the same seed draws the times that the first one would have drawn."""
    source = Arrivals(Poisson("20/s"), count=300, splits=2)
    plain = sent(source, [], seed=4)
    seen, again = SentBy(), SentBy()
    with pytest.raises(JobFailedError):
        job_of(source, []).run(
            **SETTINGS, seed=4, instruments=[seen], kills=["served@10s"], restart="none", storage=tmp_path / "state"
        )
    result = job_of(source, []).run(
        **SETTINGS, seed=4, instruments=[again], storage=tmp_path / "state", restore=True
    )
    resumed_ns = result.execution.started_ns - 10**18
    assert 8 * 10**9 < resumed_ns < 10 * 10**9
    # Records that were due before the checkpoint's time and are not in it do not exist here: it was taken at once.
    assert [time + resumed_ns for time in again.times] == [time for time in plain if time > resumed_ns]


@pytest.mark.parametrize("batch_size", [1, 64])
def test_the_time_of_a_source_is_paid_record_by_record(batch_size: int) -> None:
    """A record does not wait until the whole batch is paid for."""
    times = sent(Arrivals(Trace([0] * 4)), [], cost={"source_record": "10ms"}, batch_size=batch_size)
    assert times == [10_000_000, 20_000_000, 30_000_000, 40_000_000]


def test_a_load_above_the_capacity_ends_the_run_and_says_so() -> None:
    """No restart is tried, and the error has numbers."""
    source = Arrivals(Periodic("100/s"), count=10_000, most_waiting=500)
    with pytest.raises(JobFailedError, match="the load is above the capacity, and the queue grows for ever") as caught:
        job_of(source, []).run(**SETTINGS, service={"served": Constant("20ms")})
    assert isinstance(caught.value.__cause__, OverloadError)
    assert caught.value.exit_code == OverloadError.exit_code
    # The channels have the others that were sent and not served.
    assert re.search(r"\n  in \d+ms, (\d+) records were due and \d+ were sent: 501 wait\n", str(caught.value))


def test_a_load_above_the_capacity_that_ends_is_worked_off() -> None:
    """V2: the last of n records waits n * (1 / capacity - 1 / rate), about."""
    result = job_of(Arrivals(Periodic("100/s"), count=1_000), []).run(
        **SETTINGS, service={"served": Constant("20ms")}
    )
    assert result.makespan_ns == pytest.approx(20 * 10**9, rel=1e-3)


def overload(rate: str, seed: int) -> object:
    source = Arrivals(Poisson(rate), count=600, most_waiting=100)
    return job_of(source, []).run(**SETTINGS, seed=seed, service={"served": Constant("20ms")})


def test_a_sweep_marks_the_rows_that_are_overloaded() -> None:
    """They are no ordinary failures."""
    table = sweep(overload, rate=["25/s", "100/s"], seed=[0])
    assert [row["status"] for row in table] == ["ok", "overloaded"]
    assert "the queue grows for ever" in table[1]["error"]
    assert table.mean("makespan", by="rate")["failed"] == [0, 1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Arrivals(Poisson("8/s")), "have no end; give the number of records"),
        (lambda: Trace(["0s", "-1s"]), "a time of Trace '-1s' is negative"),
        (lambda: Arrivals("8/s", count=3), "process of Arrivals is '8/s' of type str; write Poisson"),
        (lambda: Arrivals(Poisson, count=3), "write Poisson"),
        (lambda: Arrivals(Trace([1, 2]), count=3), "count of Arrivals is 3, but Trace has 2 records"),
        (lambda: Arrivals(Trace([1, 2]), most_waiting=0), "most_waiting is 0"),
    ],
)
def test_impossible_arrivals_are_refused(make: Callable[[], object], told: str) -> None:
    """The error says what to write."""
    with pytest.raises(ConfigurationError, match=told):
        make()


def test_an_error_of_the_value_function_names_the_record() -> None:
    """It is an error of the user's function."""
    bad: Sequence[int] = []
    with pytest.raises(JobFailedError, match="value of operator 'calls' raised IndexError"):
        job_of(Arrivals(Periodic("2/s"), count=4, value=lambda i: bad[i]), []).run(**SETTINGS)
