"""Several protocols over one job: one input, one schedule, one crash, and what comes of it in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.cases import EXACTLY_ONCE, Case, promise_of, run_config
from engine.explore.ledger import LOST, TWICE, VISIBLE, EffectsInvariant, Finding, RangeSet
from engine.explore.run import FinishedCase, Subject
from engine.report.units import format_bytes, format_ns, plural
from engine.view.case_recording import record_case
from engine.view.page import page
from engine.view.page_data import ORPHAN
from engine.view.pairing import pairs_of
from engine.view.recorder import Recorder
from engine.view.shown import clean
from engine.view.single import first_of_interest, notices


@dataclass(frozen=True, slots=True)
class Compared:
    """One run of a comparison. ``sentences``: what the ledger says, each record's fate once; ``breaks``: whether it has
    broken the promise of its own mode."""

    mode: str
    case: Case
    finished: FinishedCase
    recorder: Recorder
    data: Mapping[str, Any]
    measures: Mapping[str, str]
    sentences: tuple[str, ...]
    breaks: bool


def compare_modes(subject: Subject, case: Case, modes: Sequence[str]) -> list[Compared]:
    """Run the case in each mode, with a ledger. Raises what :func:`engine.explore.run.run_case` raises."""
    return [_run(subject, case.with_config(mode=mode), mode) for mode in modes]


def _run(subject: Subject, case: Case, mode: str) -> Compared:
    made = record_case(subject, case, f"mode {mode}", EffectsInvariant.of(subject, case, EXACTLY_ONCE))
    finished, data, table, found = made.finished, made.data, made.face.checkpoints, made.found
    assert table is not None, "a process of the case has ended by itself"
    assert found is not None, "the invariant has judged the finished case"
    sentences = tuple(dict.fromkeys(_sentence(one, data) for one in found.found))
    return Compared(
        mode, case, finished, made.recorder, data, _measures(subject, finished, found.found, table, data), sentences,
        bool(found.breaking(promise_of(run_config(case).protocol))),
    )  # fmt: skip


def _measures(
    subject: Subject,
    finished: FinishedCase,
    found: Sequence[Finding],
    table: Mapping[str, Any],
    data: Mapping[str, Any],
) -> dict[str, str]:
    expected = subject.reference(finished.view.case.dropped)
    lost = wrong = 0
    if expected.order_dependent is None:
        for where in dict.fromkeys((*expected.rows, *finished.committed)):
            due, seen = Counter(expected.rows.get(where, ())), Counter(finished.committed.get(where, ()))
            lost, wrong = lost + (due - seen).total(), wrong + (seen - due).total()
    duration = table["summary"]["end_to_end_duration"]
    return {
        "records lost": str(_records(found, LOST)),
        "records counted twice": str(_records(found, TWICE)),
        "outputs lost": str(lost),
        "outputs twice or wrong": str(wrong),
        "outputs seen too early": str(_records(found, VISIBLE)),
        "checkpoints completed": str(table["counts"]["completed"]),
        "checkpoint time, average": format_ns(round(duration["avg"])),
        "bytes of all checkpoints": format_bytes(sum(row["checkpointed_size"] for row in table["history"])),
        "records replayed": str(data["replayed"]),
        "virtual time": format_ns(finished.result.ended_ns - finished.result.started_ns),
    }


def _records(found: Sequence[Finding], kind: str) -> int:
    """Records of that fate, each once, however many places show it."""
    by_origin: dict[Any, RangeSet] = {}
    for one in found:
        if one.kind == kind:
            by_origin[one.origin] = by_origin.get(one.origin, RangeSet()) | RangeSet(one.ranges)
    return sum(map(len, by_origin.values()))


def _sentence(one: Finding, data: Mapping[str, Any]) -> str:
    """The fate of records in one sentence, with the orphan that explains it where there is one."""
    is_one = one.records == 1
    orphans = [] if one.restart is None else [
        arrow for arrow in data["arrows"] if arrow[6] == ORPHAN and arrow[7] == one.restart.checkpoint_id
    ]  # fmt: skip
    if one.kind != TWICE or one.restart is None or not orphans:
        return clean(one.text, 1_000)
    receivers = " and ".join(dict.fromkeys(data["lanes"][arrow[3]] for arrow in orphans))
    return clean(
        f"{one.records_name} {'is' if is_one else 'are'} counted twice: {'it' if is_one else 'they'} arrived at"
        f" {receivers} before its snapshot of checkpoint {one.restart.checkpoint_id}, on an input whose barrier had"
        f" passed, and {'is' if is_one else 'are'} replayed after the crash",
        1_000,
    )


def comparison_page(title: str, runs: Sequence[Compared], lines: Sequence[tuple[str, str]] = ()) -> str:
    """The page: two runs side by side, in step. ``lines``: text at its top."""
    first, second = runs
    told = [("why", f"mode {run.mode}: {text}") for run in runs for text in run.sentences[:4]]
    told += [("good", f"mode {run.mode}: each record has its effects once") for run in runs if not run.sentences]
    return pair_page(title, first.data, second.data, [*lines, *told], comparison_table(runs))


def pair_page(
    title: str,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    lines: Sequence[tuple[str, str]],
    comparison: Mapping[str, Any] | None = None,
) -> str:
    """Two runs side by side, in step; both as :func:`engine.view.single.face_data` returns them."""
    pairs = pairs_of(first, second)
    begin = first_of_interest(second)
    shown = [{"kind": kind, "text": clean(text, 2_000)} for kind, text in lines]
    return page(
        title,
        {
            "title": clean(title),
            "lines": [*shown, *notices(first), *notices(second)],
            "runs": [first, second],
            "pairs": pairs,
            "begin": next((number for number, pair in enumerate(pairs) if pair[1] == begin), 0),
            "tables": [] if comparison is None else [comparison],
        },
    )


def comparison_table(runs: Sequence[Compared]) -> dict[str, Any]:
    """The measures of all runs: ``caption``, ``heads`` and ``rows``."""
    names = list(runs[0].measures)
    return {
        "caption": "Measured in each run",
        "heads": ["", *(f"mode {run.mode}" for run in runs)],
        "rows": [[name, *(run.measures[name] for run in runs)] for name in names],
    }


def verdict_of(runs: Sequence[Compared]) -> str:
    """What the comparison comes to, in a line."""
    parts = []
    for run in runs:
        twice, lost = int(run.measures["records counted twice"]), int(run.measures["records lost"])
        fate = [f"counts {plural(twice, 'record')} twice"] if twice else []
        fate += [f"loses {plural(lost, 'record')}"] if lost else []
        parts.append(f"mode {run.mode} {' and '.join(fate) or 'counts each record once'}")
    return ", ".join(parts)
