"""Runs the flights job undisturbed and killed, and proves from the files what happened to every record.

Four questions, asked of each mode:

(a) was every completed checkpoint a consistent cut? (the cut oracle, over the channel counters in the snapshots)
(b) does the committed output equal the output of an undisturbed run? (multisets of lines per partition)
(c) does it equal the answer of independent batch DataFrame code over the same files?
(d) how many records were lost, how many counted twice, and in which keys? (the running counts against the files)

In a mode without alignment, barriers arrive at different times. The snapshot then holds effects of records that are
sent again after a restore. To show it, one split gets a slower link there. The cut oracle computes beforehand how many
records a restore from that checkpoint would count twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from engine.elements.errors import ConfigurationError
from engine.explore import compare_outputs
from engine.faults.fault_plan import parse_kill
from engine.protocols import protocol_named
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig, SparkCluster, parse_where
from engine.view import check_place
from examples import flights_oracle
from examples.flights import flights_job
from examples.flights_data import FlightFiles, prepare
from examples.flights_lateness import measure_lateness
from examples.flights_page import SLOW_SPLIT, killed_run_recorder, write_killed_page
from examples.flights_run import Run, run_flights
from examples.flights_side_by_side import Receive, SideProcess
from examples.flights_spark import ROUTE_REPORT_SCHEMA
from spark_bridge import (
    OracleReport,
    SessionSettings,
    batch_times,
    compare_multisets,
    get_session,
    read_committed as read_committed_frame,
    session_address,
    session_is_running,
    start_session,
    use_session_at,
)

ANSWERS = ("counts", "days", "routes")
SCHEMAS = {
    "counts": "carrier string, count bigint",
    "days": "carrier string, day string, count bigint, mean_delay double, max_delay int",
    "routes": ROUTE_REPORT_SCHEMA,
}
KEYS = {"counts": ["carrier", "count"], "days": ["carrier", "day"], "routes": ["month", "origin", "dest"]}
SLOW_LINK_NS = 3_000_000

Proof = dict[str, Any]
Answers = dict[str, Any]
"""A DataFrame for each of the answers."""


class Step(NamedTuple):
    """A step of the demonstration: how long it took, and its batches on Spark with the time that it waited for them."""

    name: str
    seconds: float
    is_beside: bool
    batches: int = 0
    waited: float = 0.0


class Took:
    """Which step took how long. Steps ``beside`` the others ran at the same time."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    @contextmanager
    def step(self, name: str, *, beside: bool = False, on_spark: bool = False) -> Iterator[None]:
        """Measure the block; ``on_spark``: and its batches on Spark, which are all those of this process meanwhile."""
        started, before = time.perf_counter(), len(batch_times())
        yield
        batches = batch_times()[before:] if on_spark else []
        waited = sum(batch.seconds for batch in batches)
        self.steps.append(Step(name, time.perf_counter() - started, beside, len(batches), waited))

    def tell(self) -> None:
        print("\ntook")
        for step in self.steps:
            print(f"  {step.seconds:6.1f} s  {step.name}", end="")
            print(f", {step.waited:.1f} s of it in {step.batches} batches on Spark" if step.batches else "", end="")
            print(" (beside the other steps)" if step.is_beside else "")



def prove(
    modes: Sequence[str],
    *,
    seed: str,
    kill: str,
    interval: str,
    data: str,
    out: Path,
    on: str | None = None,
    html: str | None = None,
) -> int:
    """Print and store the proof for each mode; 0 when every mode kept its promise.

    ``html``: the file for a page of the killed run, of the last mode.
    ``on``: ``spark``, or ``spark=MASTER``: the killed run is one on Spark, where each batch reads ``interval``.

    Raises ``ConfigurationError`` before anything runs when a mode can prove nothing, or a setting is not readable.
    """
    started = time.perf_counter()
    cluster = parse_where(on)
    if cluster is None:
        _check_modes(modes)
        parse_kill(kill)
    if html is not None:
        check_place(html)
    periodic = CheckpointInterval.parse(interval)
    took = Took()
    # Each mode has a process, while this one simulates the undisturbed run. Batches of all of them run in one session.
    sides: dict[str, SideProcess] = {}
    for mode in modes if cluster is None else ():
        config = _killed_config(mode, seed, periodic)
        page = html if mode == modes[-1] else None
        sides[mode] = SideProcess(f"mode {mode}", partial(_prove_beside, config, kill, out / mode, page))
    if cluster is not None and cluster.master is not None:
        # The undisturbed run has batches on Spark, and a process has one session.
        start_session(SessionSettings(master=cluster.master))
    elif not session_is_running():
        start_session(SessionSettings(short_lived=True))
    with took.step("the files"):
        # Executors have another working directory.
        files = prepare(data if cluster is None else Path(data).absolute())
    _tell(sides, files)
    background = ThreadPoolExecutor(1)
    answers = background.submit(_right_answers, files, took, sides)
    background.shutdown(wait=False)
    print(f"flights: {files.flights:,} departures in {len(files.splits)} splits, ready in {_since(started)}")
    proof: Proof = {"seed": seed, "kill": kill, "checkpoint_interval": interval, "flights": files.flights, "modes": {}}
    with took.step("measuring lateness"):
        late = {hours: measure_lateness(files, hours) for hours in (6,)}
    for hours, lateness in late.items():
        print(
            f"  a bound of {hours} h: {lateness.behind_the_bound} records behind it, "
            f"{lateness.dropped_by_windows} dropped by day windows"
        )
    proof["lateness"] = {str(hours): asdict(lateness) for hours, lateness in late.items()}
    with took.step("the undisturbed run", on_spark=True):
        undisturbed = run_flights(files, out / "undisturbed", RunConfig(seed=seed, checkpoint_interval=periodic))
    _describe("undisturbed run", undisturbed)
    if cluster is not None:
        proof["modes"]["spark"] = _prove_on_spark(
            files, undisturbed, out / "spark", periodic, cluster, answers.result(), took
        )
    answers.result()
    _tell(sides, undisturbed)
    for mode, side in sides.items():
        proof["modes"][mode], steps = side.result()
        took.steps += steps
    kept = all(facts["as_promised"] for facts in proof["modes"].values())
    out.mkdir(parents=True, exist_ok=True)
    target = out / "proof.json"
    target.write_text(json.dumps(proof, indent=1, sort_keys=True) + "\n")
    took.tell()
    print(f"\n{'proved' if kept else 'NOT proved'} in {_since(started)}; stored in {target}")
    return 0 if kept else 1


def _tell(sides: Mapping[str, SideProcess], fact: object) -> None:
    for side in sides.values():
        side.tell(fact)


def _killed_config(mode: str, seed: str, interval: CheckpointInterval) -> RunConfig:
    exactly_once = protocol_named(mode).consistent_cut
    cost = CostModel() if exactly_once else CostModel(slow_links={SLOW_SPLIT: SLOW_LINK_NS})
    return RunConfig(mode=mode, seed=seed, checkpoint_interval=interval, cost=cost)


def _prove_beside(
    config: RunConfig, kill: str, directory: Path, html: str | None, receive: Receive
) -> tuple[Proof, list[Step]]:
    """The killed run of one mode and its proof. It is told the files, the address of the session, and the undisturbed
    run, after which the right answers are there."""
    files, mode, took = receive(), config.mode, Took()
    use_session_at(receive)
    recorder = None if html is None else killed_run_recorder(lambda: flights_job(files))
    with took.step(f"the killed run, {mode}", beside=True, on_spark=True):
        killed = run_flights(files, directory, config, kill=kill, recorder=recorder)
    exactly_once = protocol_named(mode).consistent_cut
    print(f"\nmode {mode}: {kill.replace('@', ' is killed at ')}", end="")
    print("" if exactly_once else f", {SLOW_SPLIT} has a link slower by {SLOW_LINK_NS / 1e6:g} ms")
    _describe("killed run", killed)
    spark = get_session()
    undisturbed = receive()
    with took.step(f"its proof, {mode}", beside=True):
        answers = {answer: spark.table(_view_of(answer)) for answer in ANSWERS}
        facts = _prove_mode(files, undisturbed, killed, answers, exactly_once=exactly_once)
    if html is not None and recorder is not None:
        write_killed_page(html, mode, kill, killed, recorder, facts["d_records"], _departures_per_carrier(files))
    return facts, took.steps


def _prove_on_spark(
    files: FlightFiles,
    undisturbed: Run,
    directory: Path,
    interval: CheckpointInterval,
    cluster: SparkCluster,
    answers: Answers,
    took: Took,
) -> Proof:
    from examples.flights_on_spark import run_on_spark

    with took.step("the killed run, on Spark", on_spark=True):
        killed = run_on_spark(files, directory, interval, cluster)
    print(f"\non Spark ({cluster.master or 'two local cores'}): the driver dies before a checkpoint's commits")
    _describe("killed run", killed)
    with took.step("its proof, on Spark"):
        return _prove_mode(files, undisturbed, killed, answers, exactly_once=True)


def _check_modes(modes: Sequence[str]) -> None:
    for mode in modes:
        if not protocol_named(mode).takes_checkpoints:
            raise ConfigurationError(
                f"mode {mode!r} takes no checkpoints, so a killed job stays dead and there is nothing to prove; "
                "choose aligned or at-least-once"
            )


def _describe(what: str, run: Run) -> None:
    result = run.result
    restored = [restore for restore in result.restores if restore.attempt > 1]
    print(
        f"  {what}: {result.source_records:,} records read, {len(run.cuts)} checkpoints, "
        f"{(result.ended_ns - result.started_ns) / 1e6:.1f} ms of virtual time, {run.seconds:.1f} s"
        + (f"; trace {run.trace_digest[:16]}" if run.trace_digest else "")
    )
    for restore in restored:
        source = "nothing" if restore.checkpoint_id is None else f"checkpoint {restore.checkpoint_id}"
        at_ms = (restore.time_ns - result.started_ns) / 1e6
        print(f"    attempt {restore.attempt} restored {source} at {at_ms:.1f} ms")


def _prove_mode(
    files: FlightFiles, undisturbed: Run, killed: Run, answers: Answers, *, exactly_once: bool
) -> Proof:
    cut = _prove_cuts(killed, undisturbed)
    same = _prove_same_output(undisturbed, killed)
    batch = _prove_against_batch(answers, killed)
    records = _count_records(files, killed)
    struck = killed.result.attempts > 1
    if not struck:
        print("  (!) the kill came after the end of the run, so nothing is proved: choose an earlier time")
    return {
        "a_cut_oracle": cut,
        "b_undisturbed_run": same,
        "c_batch_dataframes": batch,
        "d_records": records,
        "attempts": killed.result.attempts,
        "as_promised": struck and _as_promised(cut, same, batch, records, exactly_once=exactly_once),
    }


def _as_promised(cut: Proof, same: Proof, batch: Proof, records: Proof, *, exactly_once: bool) -> bool:
    """Exactly-once shows no trace of the failure; at-least-once loses nothing, and its double counts are known."""
    lost, counted_twice = records["lost"], records["counted_twice"]
    if exactly_once:
        return bool(cut["held"] and same["equal"] and batch["equal"] and not lost and not counted_twice)
    return bool(not lost and counted_twice == records["predicted"])


def _prove_cuts(killed: Run, undisturbed: Run) -> Proof:
    verdicts = [*undisturbed.oracle.verdicts, *killed.oracle.verdicts]
    orphans = sum(verdict.orphans for verdict in verdicts)
    in_transit = sum(verdict.in_transit for verdict in verdicts)
    held = undisturbed.oracle.held and killed.oracle.held
    print(f"  (a) cut oracle: {len(verdicts)} checkpoints, {_consistent(verdicts)} consistent cuts, ", end="")
    print(f"{orphans} orphans, {in_transit} in transit")
    return {"checkpoints": len(verdicts), "held": held, "orphans": orphans, "in_transit": in_transit}


def _consistent(verdicts: Sequence[Any]) -> int:
    return sum(verdict.consistent for verdict in verdicts)


def _prove_same_output(undisturbed: Run, killed: Run) -> Proof:
    facts: Proof = {}
    for answer in ANSWERS:
        expected, actual = undisturbed.committed(answer), killed.committed(answer)
        comparison = compare_outputs(expected, actual)
        counts = comparison.counts
        facts[answer] = {
            "rows": comparison.rows_actual,
            "partitions": len(actual),
            "lost": counts.lost,
            "duplicated": counts.duplicated,
            "unexpected": counts.unexpected,
        }
    equal = all(not any((one["lost"], one["duplicated"], one["unexpected"])) for one in facts.values())
    print(f"  (b) committed output {'equals' if equal else 'DIFFERS FROM'} the undisturbed run:", end="")
    for answer, one in facts.items():
        print(f" {answer} {one['rows']:,} rows in {one['partitions']} partitions", end="")
        if one["lost"] or one["duplicated"] or one["unexpected"]:
            print(f" ({one['lost']} lost, {one['duplicated']} duplicated, {one['unexpected']} foreign)", end="")
        print("," if answer != ANSWERS[-1] else "", end="")
    print()
    return {"equal": equal, "answers": facts}


def _prove_against_batch(expected: Answers, killed: Run) -> Proof:
    reports: dict[str, OracleReport] = {}
    for answer in ANSWERS:
        actual = read_committed_frame(str(killed.directory / answer), SCHEMAS[answer])
        reports[answer] = compare_multisets(expected[answer], actual, KEYS[answer], examples_max=0)
    equal = all(report.equal for report in reports.values())
    print(f"  (c) committed output {'equals' if equal else 'DIFFERS FROM'} batch DataFrame code:", end="")
    print(",".join(f" {answer} {report.matched:,} of {report.expected_rows:,}" for answer, report in reports.items()))
    return {
        "equal": equal,
        "answers": {
            answer: {"matched": report.matched, "missing": report.missing, "unexpected": report.unexpected}
            for answer, report in reports.items()
        },
    }


def _right_answers(files: FlightFiles, took: Took, sides: Mapping[str, SideProcess]) -> Answers:
    """The right answers, from batch code alone, kept in Spark's memory, and for ``sides`` under names."""
    with took.step("Spark's start", beside=True):
        spark = get_session()
    if sides:
        _tell(sides, session_address())
    from pyspark.sql import functions as f

    with took.step("the batch code", beside=True):
        flights = flights_oracle.read_flights(spark, files.splits).cache()
        tables = [flights_oracle.read_reference(spark, path) for path in (files.airports, files.planes, files.weather)]
        totals = flights_oracle.carrier_counts(flights)
        answers = {
            # A running count over n departures shows each number from 1 to n once.
            "counts": totals.select("carrier", f.explode(f.sequence(f.lit(1).cast("bigint"), "count")).alias("count")),
            "days": flights_oracle.carrier_days(flights),
            "routes": flights_oracle.route_report(flights, *tables),
        }
        for name, answer in answers.items():
            answer.cache().count()
            answer.createOrReplaceTempView(_view_of(name))
    return answers


def _view_of(answer: str) -> str:
    return f"right_{answer}"


def _count_records(files: FlightFiles, killed: Run) -> Proof:
    truth = _departures_per_carrier(files)
    counted: dict[str, int] = {}
    for rows in killed.committed("counts").values():
        for row in map(json.loads, rows):
            counted[row["carrier"]] = max(counted.get(row["carrier"], 0), row["count"])
    off = {carrier: counted.get(carrier, 0) - total for carrier, total in sorted(truth.items())}
    twice = {carrier: extra for carrier, extra in off.items() if extra > 0}
    lost = -sum(extra for extra in off.values() if extra < 0)
    predicted = killed.predicted_duplicates()
    print(f"  (d) records lost / counted twice: {lost} / {sum(twice.values())}", end="")
    if twice or predicted:
        print(f"  (the cut oracle predicted {predicted})")
        shown = sorted(twice.items(), key=lambda one: (-one[1], one[0]))
        print("      counted twice by carrier: " + ", ".join(f"{carrier} {extra}" for carrier, extra in shown))
    else:
        print()
    return {"lost": lost, "counted_twice": sum(twice.values()), "by_carrier": twice, "predicted": predicted}


@cache
def _departures_per_carrier(files: FlightFiles) -> dict[str, int]:
    """The truth, from the files themselves."""
    import csv

    totals: Counter[str] = Counter()
    for split in files.splits:
        with Path(split).open(newline="") as file:
            rows = csv.reader(file)
            carrier = next(rows).index("carrier")
            totals.update(row[carrier] for row in rows)
    return totals


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"
