"""An inspected checkpoint as lines of text. The text is data: it goes to standard output and is the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.cli.inspection.in_flight import clipped, in_flight_lines, place
from engine.report.units import format_bytes, format_count, format_ns, plural
from engine.runtime.kernel import START_NS
from state_backends.codec import shown


def inspection_lines(inspected: Mapping[str, Any], limit: int) -> Iterator[str]:
    """The whole text, line by line, with up to ``limit`` records in flight of each channel."""
    yield (
        f"{_kind(inspected)} {inspected['checkpoint_id']} of job {inspected['properties'].get('job', '?')}"
        f" ({_when_made(inspected)}{_ending(inspected['properties'].get('stop'))})"
    )
    yield f"  in {inspected['path']}"
    yield (
        f"  state {format_bytes(inspected['state_bytes'])},"
        f" {format_bytes(inspected['file_bytes'])} of it in {plural(inspected['files'], 'file')},"
        f" metadata {format_bytes(inspected['metadata_bytes'])}; every byte verified"
    )
    if inspected["uploaded_bytes"] != inspected["state_bytes"]:
        uploaded = format_bytes(inspected["uploaded_bytes"])
        yield f"  {uploaded} of the state written by this checkpoint, the rest by earlier ones"
    in_flight = inspected["in_flight"]
    if in_flight["records"]:
        yield f"  {plural(in_flight['records'], 'record')} in flight, {format_bytes(in_flight['bytes'])} of the state"
    for operator in inspected["operators"]:
        yield from _operator(operator, limit)


def _when_made(inspected: Mapping[str, Any]) -> str:
    if not inspected["incarnation"]:
        return "written without a job"
    triggered = format_ns(inspected["timestamp_ns"] - START_NS)
    return f"incarnation {inspected['incarnation']}, triggered {triggered} of virtual time after the first start"


def _kind(inspected: Mapping[str, Any]) -> str:
    if inspected["kind"] != "savepoint":
        return str(inspected["kind"])
    return f"{inspected['properties'].get('format', 'canonical')} savepoint"


def _ending(stop: str | None) -> str:
    if stop is None:
        return ""
    return ", the job drained and stopped with it" if stop == "terminate" else ", the job stopped with it"


def _operator(operator: Mapping[str, Any], limit: int) -> Iterator[str]:
    yield ""
    yield (
        f"operator {operator['uid']} ({operator['name']}): parallelism {operator['parallelism']}"
        f" of at most {operator['max_parallelism']}, {format_bytes(operator['state_bytes'])}"
    )
    for subtask in operator["subtasks"]:
        yield from _subtask(subtask, limit)


def _subtask(subtask: Mapping[str, Any], limit: int) -> Iterator[str]:
    keyed, operator_state, in_flight = subtask["keyed"], subtask["operator"], subtask["in_flight"]
    title = f"  subtask {subtask['subtask']}" + (", finished" if subtask["finished"] else "")
    if keyed is None and operator_state is None and not any(in_flight.values()):
        yield f"{title}: no state"
        return
    yield title
    if keyed is not None:
        yield from _keyed(keyed)
        for state in keyed["states"]:
            yield from _keyed_state(state)
    if operator_state is not None:
        yield f"    operator state, {place(operator_state['stored'])}"
        for state in operator_state["states"]:
            yield f"      {state['name']} ({state['mode']}): {plural(state['elements'], 'element')}"
            yield from (f"        {clipped(element)}" for element in state["shown"])
            yield from _rest(state["elements"], len(state["shown"]))
    yield from in_flight_lines(in_flight, limit)


def _keyed(keyed: Mapping[str, Any]) -> Iterator[str]:
    first, last = keyed["key_groups"]
    title = f"    keyed by {keyed['key_type'] or 'nothing yet'}, key groups {first} to {last}"
    if keyed["form"] == "full":
        yield f"{title}, {place(keyed['stored'])}"
    else:
        yield f"{title}, {_increment(keyed)}"
        yield from _files(keyed, "      ")
    if "unreadable" in keyed:
        yield f"      its entries cannot be shown: {keyed['unreadable']}"


def _increment(form: Mapping[str, Any]) -> str:
    what = f"{form['store']} files" if form["form"] == "incremental" else "a log of changes"
    full, uploaded = format_bytes(form["full_bytes"]), format_bytes(form["uploaded_bytes"])
    return f"{what}: {full}, of which this checkpoint uploaded {uploaded}"


def _files(form: Mapping[str, Any], indent: str) -> Iterator[str]:
    if form["form"] == "full":
        yield f"{indent}{place(form['stored'])}"
    elif form["form"] == "incremental":
        for level in form["levels"]:
            files, entries = plural(level["files"], "file"), plural(level["entries"], "entry", "entries")
            yield f"{indent}level {level['level']}: {files}, {format_bytes(level['bytes'])}, {entries}"
        for file in form["data_files"]:
            level = f"level {file['level']}, {plural(file['entries'], 'entry', 'entries')}, " if "level" in file else ""
            yield f"{indent}{file['name']}: {level}{place(file)}, {_origin(file)}"
        private = form["private_files"]
        size = sum(file["bytes"] for file in private) + form["meta"]["bytes"]
        yield f"{indent}{plural(len(private) + 1, 'private file')}, {format_bytes(size)}"
    else:
        materialized = "none yet" if not form["materialized"] else f"number {form['materialization_id']}"
        yield f"{indent}materialised: {materialized}" + (", new here" if form["materialized_now"] else "")
        for one in form["materialized"]:
            yield from _files(one, indent + "  ")
        for segment in form["log"]:
            changes = f"changes {segment['first']} to {segment['end'] - 1}"
            yield f"{indent}log, {changes}: {place(segment)}, {_origin(segment)}"


def _origin(file: Mapping[str, Any]) -> str:
    if file["uploaded_now"]:
        return "uploaded now"
    return "uploaded earlier" if file["uploaded_by"] is None else f"uploaded by checkpoint {file['uploaded_by']}"


def _keyed_state(state: Mapping[str, Any]) -> Iterator[str]:
    entries, groups = plural(state["entries"], "entry", "entries"), plural(len(state["key_groups"]), "key group")
    yield f"      {state['name']} ({state['kind']}): {entries} in {groups}"
    for entry in state["shown"]:
        namespace = f" @ {shown(entry['namespace'])}" if "namespace" in entry else ""
        sign = "fires at" if state["kind"] == "timers" else "="
        yield f"        [{entry['key_group']}] {shown(entry['key'])}{namespace} {sign} {clipped(entry['value'])}"
    yield from _rest(state["entries"], len(state["shown"]))


def _rest(total: int, shown_count: int) -> Iterator[str]:
    if total > shown_count:
        yield f"        … {format_count(total - shown_count)} more; --limit shows them"
