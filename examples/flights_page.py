"""The page of the killed run of the flights job: it shows why records count twice, or why none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine import Job
from engine.explore import Subject
from engine.report import checkpoint_table
from engine.view import Recorder, RunFace, run_page, write_page

if TYPE_CHECKING:
    from examples.flights_run import Run

SLOW_SPLIT = "flights[2]"
_MOST_ENTRIES = 20_000
"""Around the crash: enough for the checkpoint before it, and the page is small enough for an e-mail."""


def killed_run_recorder(job: Callable[[], Job]) -> Recorder:
    """A recorder for the killed run of the job."""
    return Recorder(Subject(lambda _: job(), label="flights"), most=_MOST_ENTRIES)


def write_killed_page(
    html: str,
    mode: str,
    kill: str,
    killed: Run,
    recorder: Recorder,
    records: Mapping[str, Any],
    departures: Mapping[str, int],
) -> None:
    """Write the page. ``records``: how many were lost and counted twice; ``departures``: the truth, by carrier."""
    lines = [("soft", f"flights, mode {mode}, {kill.replace('@', ' is killed at ')}"), *_why(killed, records)]
    twice = records["by_carrier"]
    table = checkpoint_table(killed.result.checkpoints, recorder.plan, killed.config, killed.oracle)
    face = RunFace(f"mode {mode}", None, table)
    tables = [_by_carrier(twice, departures)] if twice else []
    write_page(html, run_page(f"flights: mode {mode}", recorder, face, lines, tables=tables))
    print(f"  page of the killed run: {html}")


def _why(killed: Run, records: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not records["counted_twice"]:
        return [("good", "No record is lost, and none counts twice: every checkpoint is a consistent cut.")]
    restored = [one.checkpoint_id for one in killed.result.restores if one.attempt > 1]
    return [
        (
            "why",
            f"{records['counted_twice']:,} records count twice. Checkpoint {restored[0]} is no consistent cut:"
            f" {SLOW_SPLIT} has a slow link, so its barrier came late. Until then the counters took records that the"
            " other sources had sent after their barriers, and kept them in the checkpoint (the orphans, ◎). After the"
            " crash the sources went back to their positions in the checkpoint, and sent these records again."
            f" The cut oracle predicted {records['predicted']:,} before the crash.",
        )
    ]


def _by_carrier(twice: Mapping[str, int], departures: Mapping[str, int]) -> dict[str, Any]:
    rows = sorted(((one, departures[one], extra) for one, extra in twice.items()), key=lambda row: -row[2])
    rows.append(("all of these", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    return {
        "caption": "Carriers with departures that are counted twice",
        "heads": ["carrier", "departures in the files", "counted by the job", "counted twice"],
        "rows": [[name, f"{true:,}", f"{true + extra:,}", f"{extra:,}"] for name, true, extra in rows],
    }
