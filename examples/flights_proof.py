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
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from engine import read_committed
from engine.elements.errors import ConfigurationError
from engine.explore import compare_outputs
from engine.faults.fault_plan import parse_kill
from engine.graph.plan import ExecutionPlan
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest
from engine.observe.trace_events import CheckpointCut, TraceEvent
from engine.protocols import protocol_named
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig, SparkCluster, parse_where
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import open_storage
from engine.view import Recorder, check_place
from examples import flights_oracle
from examples.flights import flights_job
from examples.flights_data import FlightFiles, prepare
from examples.flights_lateness import measure_lateness
from examples.flights_page import SLOW_SPLIT, killed_run_recorder, write_killed_page
from examples.flights_spark import ROUTE_REPORT_SCHEMA
from spark_bridge import (
    OracleReport,
    SessionSettings,
    batch_times,
    compare_multisets,
    get_session,
    read_committed as read_committed_frame,
    session_is_running,
    start_session,
)
from state_backends.files import FileSystem, LocalFileSystem

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


class Took:
    """Which step took how long. Steps ``beside`` the others ran on the other core."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, float, bool, int, float]] = []

    @contextmanager
    def step(self, name: str, *, beside: bool = False) -> Iterator[None]:
        """Measure the block, and the batches on Spark in it."""
        started, before = time.perf_counter(), len(batch_times())
        yield
        batches = [] if beside else batch_times()[before:]
        waited = sum(batch.seconds for batch in batches)
        self._steps.append((name, time.perf_counter() - started, beside, len(batches), waited))

    def tell(self) -> None:
        print("\ntook")
        for name, seconds, beside, batches, waited in self._steps:
            print(f"  {seconds:6.1f} s  {name}", end="")
            print(f", {waited:.1f} s of it in {batches} batches on Spark" if batches else "", end="")
            print(" (beside the other steps)" if beside else "")



@dataclass
class Run:
    """One run of the job and the place of its output."""

    directory: Path
    file_system: FileSystem
    result: ExecutionResult
    oracle: CutOracle
    cuts: dict[int, CheckpointCut]
    trace_digest: str
    seconds: float
    count_channels: frozenset[int]
    config: RunConfig = field(default_factory=RunConfig)

    def committed(self, answer: str) -> dict[str, list[str]]:
        """Visible lines of one answer, sorted, per partition."""
        return read_committed(self.file_system, str(self.directory / answer))

    def predicted_duplicates(self) -> int:
        """The cut oracle's count for the checkpoint that the job was restored from: records after the cut whose
        effect on the running counts is in the snapshot all the same."""
        restored = [restore.checkpoint_id for restore in self.result.restores if restore.checkpoint_id is not None]
        return sum(
            max(0, received - sent)
            for checkpoint_id in restored
            for channel, sent, received in self.cuts[checkpoint_id].differences
            if channel in self.count_channels
        )


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
    # The other core has time while this one prepares files and simulates: Spark starts there, and the batch code runs.
    if cluster is not None and cluster.master is not None:
        # The undisturbed run has batches on Spark, and a process has one session.
        start_session(SessionSettings(master=cluster.master))
    elif not session_is_running():
        start_session(SessionSettings(short_lived=True))
    with took.step("the files"):
        # Executors have another working directory.
        files = prepare(data if cluster is None else Path(data).absolute())
    background = ThreadPoolExecutor(1)
    answers = background.submit(_right_answers, files, took)
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
    with took.step("the undisturbed run"):
        undisturbed = run_flights(files, out / "undisturbed", RunConfig(seed=seed, checkpoint_interval=periodic))
    _describe("undisturbed run", undisturbed)
    kept = True
    if cluster is not None:
        modes = ()
        kept = _prove_on_spark(files, undisturbed, out / "spark", periodic, cluster, proof, answers, took)
    for mode in modes:
        exactly_once = protocol_named(mode).consistent_cut
        cost = CostModel() if exactly_once else CostModel(slow_links={SLOW_SPLIT: SLOW_LINK_NS})
        config = RunConfig(mode=mode, seed=seed, checkpoint_interval=periodic, cost=cost)
        recorder = None if html is None else killed_run_recorder(lambda: flights_job(files))
        with took.step(f"the killed run, {mode}"):
            killed = run_flights(files, out / mode, config, kill=kill, recorder=recorder)
        print(f"\nmode {mode}: {kill.replace('@', ' is killed at ')}", end="")
        print("" if exactly_once else f", {SLOW_SPLIT} has a link slower by {SLOW_LINK_NS / 1e6:g} ms")
        _describe("killed run", killed)
        with took.step(f"its proof, {mode}"):
            facts = _prove_mode(files, undisturbed, killed, answers, exactly_once=exactly_once)
        proof["modes"][mode] = facts
        if html is not None and recorder is not None:
            write_killed_page(html, mode, kill, killed, recorder, facts["d_records"], _departures_per_carrier(files))
        kept = kept and facts["as_promised"]
    out.mkdir(parents=True, exist_ok=True)
    target = out / "proof.json"
    target.write_text(json.dumps(proof, indent=1, sort_keys=True) + "\n")
    took.tell()
    print(f"\n{'proved' if kept else 'NOT proved'} in {_since(started)}; stored in {target}")
    return 0 if kept else 1


def _prove_on_spark(
    files: FlightFiles,
    undisturbed: Run,
    directory: Path,
    interval: CheckpointInterval,
    cluster: SparkCluster,
    proof: Proof,
    answers: Future[Answers],
    took: Took,
) -> bool:
    from examples.flights_on_spark import run_on_spark

    with took.step("the killed run, on Spark"):
        killed = run_on_spark(files, directory, interval, cluster)
    print(f"\non Spark ({cluster.master or 'two local cores'}): the driver dies before a checkpoint's commits")
    _describe("killed run", killed)
    with took.step("its proof, on Spark"):
        facts = _prove_mode(files, undisturbed, killed, answers, exactly_once=True)
    proof["modes"]["spark"] = facts
    return bool(facts["as_promised"])


def _check_modes(modes: Sequence[str]) -> None:
    for mode in modes:
        if not protocol_named(mode).takes_checkpoints:
            raise ConfigurationError(
                f"mode {mode!r} takes no checkpoints, so a killed job stays dead and there is nothing to prove; "
                "choose aligned or at-least-once"
            )


def run_flights(
    files: FlightFiles,
    directory: Path,
    config: RunConfig,
    *,
    kill: str | None = None,
    file_system: FileSystem | None = None,
    recorder: Recorder | None = None,
) -> Run:
    """Run the job once, below ``directory``, which is emptied first.

    ``kill`` is ``'count[0]@70ms'`` or the like; ``file_system`` holds the flights and receives the output, ``None`` =
    the real one; ``recorder`` records the run. Raises the job's error when it fails.
    """
    disk = LocalFileSystem() if file_system is None else file_system
    disk.delete_tree(str(directory))
    plan = flights_job(files).plan()
    oracle, digest = CutOracle(), TraceDigest()
    cuts: dict[int, CheckpointCut] = {}

    def keep_cuts(event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut):
            cuts[event.checkpoint_id] = event

    started = time.perf_counter()
    with open_storage(str(directory / "checkpoints"), plan.job_name, file_system=disk) as opened:
        observers = (oracle, digest, keep_cuts)
        execution = Execution(
            plan if recorder is None else recorder.of_run(plan, str(directory)),
            config,
            storage=opened.storage,
            file_system=disk,
            incarnation=opened.incarnation,
            output_dir=str(directory),
            instruments=observers if recorder is None else (*observers, recorder.observe),
        )
        if kill is not None:
            fault = parse_kill(kill)
            execution.kill(fault.target, fault.at_ns)
        result = (execution.run() if recorder is None else recorder.run(execution)).raise_on_failure()
    seconds = time.perf_counter() - started
    return Run(directory, disk, result, oracle, cuts, digest.hexdigest(), seconds, counting_channels(plan), config)


def counting_channels(plan: ExecutionPlan) -> frozenset[int]:
    """The channels that lead to the running counts."""
    counting = {vertex.index for vertex in plan.vertices for operator in vertex.operators if operator.name == "count"}
    return frozenset(channel.index for channel in plan.channels if channel.receiver_vertex in counting)


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
    files: FlightFiles, undisturbed: Run, killed: Run, answers: Future[Answers], *, exactly_once: bool
) -> Proof:
    cut = _prove_cuts(killed, undisturbed)
    same = _prove_same_output(undisturbed, killed)
    batch = _prove_against_batch(answers.result(), killed)
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
        comparison = compare_outputs(undisturbed.committed(answer), killed.committed(answer))
        counts = comparison.counts
        facts[answer] = {
            "rows": comparison.rows_actual,
            "partitions": len(killed.committed(answer)),
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
        reports[answer] = compare_multisets(expected[answer], actual, KEYS[answer], examples_max=3)
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


def _right_answers(files: FlightFiles, took: Took) -> Answers:
    """The right answers, from batch code alone, kept in Spark's memory."""
    with took.step("Spark's start", beside=True):
        spark = get_session()
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
        for answer in answers.values():
            answer.cache().count()
    return answers


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

    totals: dict[str, int] = {}
    for split in files.splits:
        with Path(split).open(newline="") as file:
            for row in csv.DictReader(file):
                totals[row["carrier"]] = totals.get(row["carrier"], 0) + 1
    return totals


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"
