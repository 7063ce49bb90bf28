"""Latency of records, sojourn in tasks, and how tasks pass their time: against closed forms of queueing."""

from __future__ import annotations

from typing import Any

import pytest

from engine import CountingSink, Job, SequenceSource
from engine.elements.errors import ConfigurationError
from engine.elements.laws import Law
from engine.report import RunResult
from engine.study import Arrivals, Constant, Exponential, Periodic, Poisson, Trace

NO_COST = {"source_record": "0s"}


def queue(source: Arrivals, laws: dict[str, Law], **settings: Any) -> RunResult:
    job = Job("queue")
    stream = job.source(source, name="calls")
    for name in laws:
        stream = stream.map(lambda n: n, name=name, chain=False)
    stream.sink(CountingSink(), name="end", chain=False)
    given = {"mode": "none", "cost": NO_COST, "service": laws, "channel_capacity": 1_000_000}
    result = job.run(**{**given, **settings})
    assert isinstance(result, RunResult)
    return result


def row(result: RunResult, kind: str, of: str) -> dict[str, Any]:
    return next(one for one in result.latency if (one["kind"], one["of"]) == (kind, of))


def drawn(result: RunResult, beginning: str) -> list[int]:
    return [one.value for one in result.execution.choices.log if one.stream.startswith(beginning)]


def test_the_sojourn_of_each_record_is_that_of_lindleys_recursion() -> None:
    """To the ns: arrivals and services are those of the recorded choices."""
    law = Exponential("100ms")
    result = queue(Arrivals(Poisson("8/s"), count=400), {"server": law}, seed=5)
    gaps, services = drawn(result, "arrivals of"), drawn(result, "service of")
    due_ns = free_ns = total_ns = 0
    # The time of the record after the last one is drawn, too.
    for gap, service in zip(gaps, services, strict=False):
        due_ns += Exponential(125_000_000).quantile_ns(gap)
        free_ns = max(due_ns, free_ns) + law.quantile_ns(service)
        total_ns += free_ns - due_ns
    sojourn = result.latencies
    assert sojourn is not None
    assert sojourn.sojourns["server"].total == total_ns
    assert row(result, "event", "end")["records"] == 400
    assert sojourn.events["end"].total == total_ns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "wait_factor"), [(Exponential("100ms"), 1.0), (Constant("100ms"), 0.5)], ids=["M/M/1", "M/D/1"]
)
def test_the_mean_sojourn_is_that_of_pollaczek_and_khinchine(law: Law, wait_factor: float) -> None:
    """V1: service + rho / (mu (1 - rho)) for M/M/1, half of that wait for M/D/1; at rho = 0.6, mu = 10/s."""
    result = queue(Arrivals(Poisson("6/s"), count=10_000), {"server": law}, seed=1)
    expected_s = 0.1 + wait_factor * 0.6 / (10 * 0.4)
    assert row(result, "sojourn", "server")["mean_ns"] == pytest.approx(expected_s * 1e9, rel=0.1)


@pytest.mark.slow
def test_queues_one_after_the_other_add_up() -> None:
    """V1, Jackson: each of two M/M/1 queues has its own mean, and the event latency is their sum."""
    laws: dict[str, Law] = {"one": Exponential("100ms"), "two": Exponential("125ms")}
    result = queue(Arrivals(Poisson("4/s"), count=8_000), laws, seed=2)
    one, two = (row(result, "sojourn", name)["mean_ns"] for name in laws)
    assert one == pytest.approx(1e9 / (10 - 4), rel=0.1)
    assert two == pytest.approx(1e9 / (8 - 4), rel=0.1)
    assert row(result, "event", "end")["mean_ns"] == pytest.approx(one + two, abs=2)


def test_latency_ramps_up_when_a_load_above_the_capacity_ends() -> None:
    """V2: p50 : p90 : max = 0.5 : 0.9 : 1, and the last record waits T (lambda / mu - 1)."""
    result = queue(Arrivals(Periodic("20/s"), count=2_000), {"server": Constant("100ms")}, channel_capacity=8)
    latency = row(result, "event", "end")
    greatest = latency["max_ns"]
    assert greatest == pytest.approx(100e9 * (20 / 10 - 1), rel=2e-3)
    assert latency["p50_ns"] == pytest.approx(0.5 * greatest, rel=5e-3)
    assert latency["p90_ns"] == pytest.approx(0.9 * greatest, rel=5e-3)


def test_latency_counts_from_when_a_record_was_due_also_over_a_failure() -> None:
    """A record that is due during the restart waits for its end; a record that is sent again is counted again."""
    source = Arrivals(Trace(["0s", "100ms", "1200ms"]))
    result = queue(
        source, {"server": Constant("10ms")}, mode="aligned", checkpoint_interval="50ms", kills=["server@105ms"],
        restart="fixed:3:2s",
    )
    latency = row(result, "event", "end")
    # 10 ms; then killed in service: 2105 ms - 100 ms + 10 ms; 2115 ms - 1200 ms + 10 ms.
    assert latency["records"] == 3
    assert latency["mean_ns"] == pytest.approx((10 + 2_015 + 925) * 1e6 / 3, abs=1)


def test_records_in_flight_keep_their_due_times_in_an_unaligned_checkpoint() -> None:
    """They are restored from the checkpoint, not sent again, and their latency goes on."""
    source = Arrivals(Trace([*[0] * 20, "5s"]))
    settings: dict[str, Any] = {"mode": "unaligned", "checkpoint_interval": "15ms", "restart": "fixed:3:1s"}
    job = Job("in flight")
    stream = job.source(source, name="calls").rebalance().map(lambda n: n, name="server")
    stream.sink(CountingSink(), name="end")
    service = {"server": Constant("10ms")}
    result = job.run(cost=NO_COST, service=service, kills=["server@25ms"], batch_size=64, **settings)
    # The checkpoint at 15 ms holds 18 records in flight: the server has handled one, and completes another one.
    assert result.checkpoints["persisted_bytes"][0] == 18 * 100
    assert result.recoveries["checkpoint_id"] == [1]
    latency = row(result, "event", "end")
    assert result.latencies is not None
    assert not result.latencies.untimed
    # The job goes on 1,025 ms after the records were due.
    assert latency["records"] == 21
    assert latency["max_ns"] == 1_025_000_000 + 18 * 10_000_000


def test_how_tasks_pass_their_time() -> None:
    """A source of 1 ms before a server of 4 ms: busy a quarter of the time, back-pressured the rest."""
    job = Job("pressed")
    source = Arrivals(Trace([0] * 1_000))
    job.source(source, name="calls").map(lambda n: n, name="server", chain=False).sink(CountingSink(), name="end")
    cost = {"source_record": "1ms", "record": "4ms", "stragglers": {"end": 0}}
    result = job.run(mode="none", cost=cost, channel_capacity=2, batch_size=1)
    times = {task.name: task.times for task in result.execution.tasks}
    calls, server = times["calls[0]"], times["server[0]"]
    assert calls.busy_ns == 1_000 * 1_000_000
    assert calls.back_pressured_ns == pytest.approx(3_000 * 1_000_000, rel=0.01)
    assert server.busy_ns == 4_000 * 1_000_000
    assert server.back_pressured_ns == 0
    values = {(one["of"], one["name"]): one["value"] for one in result.metrics}
    assert values["calls[0]", "busyTimeMsPerSecond"] == pytest.approx(250, abs=2)
    assert values["calls[0]", "accumulateBusyTimeMs"] == 1_000


def test_utilisation_is_that_of_the_load() -> None:
    """rho = lambda / mu, and the time of a killed attempt counts, too."""
    settings: dict[str, Any] = {"mode": "aligned", "checkpoint_interval": "10s", "kills": ["server@50s"]}
    result = queue(Arrivals(Periodic("5/s"), count=500), {"server": Constant("100ms")}, **settings)
    server = next(task for task in result.execution.tasks if task.name == "server[0]")
    handled = server.total_records_in
    assert handled > 500
    assert server.times.busy_ns == handled * 100_000_000
    assert sum(server.times) == pytest.approx(result.makespan_ns, rel=1e-3)


def test_latency_is_not_measured_unless_it_is_wanted() -> None:
    """By default only with arrivals; the error says how, and a ledger excludes it."""
    job = Job("plain")
    job.source(SequenceSource(0, 100), name="numbers").map(lambda n: n, name="next", chain=False).collect([])
    plain = job.run()
    with pytest.raises(ConfigurationError, match=r"latency was not measured; run the job with job.run\(latency=True\)"):
        plain.latency
    measured = job.run(latency=True, cost={"source_record": "1us", "record": "3us"}, batch_size=1)
    assert measured.latency["records"]
    with pytest.raises(ConfigurationError, match="both follow each record"):
        job.run(latency=True, provenance=measured.latencies)
