/* --- tables ------------------------------------------------------------------------------------------------------- */
function table(caption, heads, rows, numbers = []) {
  const cell = (tag) => (text, at) => html(tag, { class: numbers.includes(at) ? "number" : null, scope: tag === "th" ? "col" : null }, text instanceof Node ? text : String(text ?? "–"));
  return html("div", { class: "wide" }, html("table", {}, html("caption", { class: "soft" }, caption), html("thead", {}, html("tr", {}, heads.map(cell("th")))), html("tbody", {}, rows.map((row) => html("tr", {}, row.map(cell("td")))))));
}
/* What is made only when it is opened: a table of a thousand rows costs nothing before. */
function folded(title, parts) {
  const made = html("details", { ontoggle: () => made.fill() }, html("summary", {}, title));
  made.fill = () => { made.append(...parts()); made.fill = () => {}; };
  return made;
}
/* Of each kind of cells at most LISTED_CELLS, those that have changed or differ first of all, unless all are asked for. */
function cellTables(run, other, again) {
  const parts = [];
  for (const [kind, title, ...heads] of KINDS) {
    const rows = [];
    for (const [number, text] of run.values) {
      const cell = run.cells[number];
      if (cell[0] !== kind) continue;
      const differs = other && kind !== "transaction" && kind !== "pressure" && other.value(cell) !== text;
      rows.push([cell, text, run.changed.has(number), differs]);
    }
    if (other && kind !== "transaction" && kind !== "pressure") for (const [number, text] of other.values) {
      const cell = other.cells[number];
      if (cell[0] === kind && run.value(cell) === undefined) rows.push([cell, "–", false, true, text]);
    }
    if (!rows.length) continue;
    const key = new Map(rows.map(([cell]) => [cell, cell.join(" ")]));
    rows.sort((one, two) => inOrder(key.get(one[0]), key.get(two[0])));
    const matters = rows.filter((row) => row[2] || row[3]).slice(0, LISTED_CELLS), few = new Set([...matters, ...rows.filter((row) => !(row[2] || row[3])).slice(0, LISTED_CELLS - matters.length)]);
    const listed = run.inFull.has(kind) ? rows.slice(0, MOST_CELLS) : rows.filter((row) => few.has(row));
    parts.push(html("h3", {}, title), html("div", { class: "wide" }, html("table", { class: "cells" }, html("thead", {}, html("tr", {}, heads.map((text) => html("th", { scope: "col" }, text)))), html("tbody", {}, listed.map(([cell, text, changed, differs]) =>
      html("tr", { class: [changed && "changed", differs && "differs"].filter(Boolean).join(" ") || null }, html("td", {}, cell[1]), html("td", { class: "long" }, cell[2]), html("td", { class: "long" }, kind === "reader" ? (text === "–" ? "not seen" : text === "1" ? "once" : text) : text)))))));
    if (rows.length > listed.length) parts.push(html("p", { class: "soft" }, `and ${count(rows.length - listed.length)} more `,
      html("button", { class: "small", onclick: () => { run.inFull.add(kind); again(); } }, `show all: ${title}`)));
  }
  return parts.length ? parts : [html("p", { class: "soft" }, "no state yet")];
}
function checkpointTables(checkpoints) {
  if (!checkpoints) return [];
  const { counts, history, summary, configuration } = checkpoints, time = (ns) => (ns < 0 ? "–" : duration(ns - (checkpoints.started ?? 0)));
  const named = (row) => (row ? `${row.id} (${time(row.latest_ack_timestamp ?? row.restore_timestamp)})` : "none"), { latest } = checkpoints;
  const parts = [html("p", {}, `Triggered ${counts.total}, in progress ${counts.in_progress}, completed ${counts.completed}, failed ${counts.failed}, restored ${counts.restored}. Latest completed: ${named(latest.completed)}, failed: ${named(latest.failed)}, savepoint: ${named(latest.savepoint)}, restore: ${named(latest.restored)}.`),
    html("p", { class: "soft" }, `Configuration: mode ${configuration.mode || "none"} (${configuration.protocol}), interval ${configuration.interval_records ? `${configuration.interval_records} records` : duration(configuration.interval)}, timeout ${duration(configuration.timeout)}, min pause ${duration(configuration.min_pause)}, max concurrent ${configuration.max_concurrent}, retained ${configuration.retained}.`)];
  if (history.length) parts.push(table("History", ["ID", "Status", "Acknowledged", "Trigger Time", "Latest Acknowledgement", "End to End Duration", "Checkpointed Data Size", "Full Checkpoint Data Size", "Processed (persisted) in-flight data", "Orphans", "Why it failed"],
    history.map((row) => [row.id + (row.is_savepoint ? " (savepoint)" : ""), row.status.toLowerCase(), `${row.num_acknowledged_subtasks}/${row.num_subtasks}`, time(row.trigger_timestamp), time(row.latest_ack_timestamp), duration(row.end_to_end_duration), size(row.checkpointed_size), size(row.state_size), `${size(row.processed_data)} (${size(row.persisted_data)})`, row.orphans, row.failure_message || ""]), [0, 2, 3, 4, 5, 6, 7, 8, 9]));
  if (checkpoints.more) parts.push(html("p", { class: "soft" }, `and ${count(checkpoints.more)} older ones`));
  const names = { end_to_end_duration: ["End to End Duration", duration], checkpointed_size: ["Checkpointed Data Size", size], state_size: ["Full Checkpoint Data Size", size], processed_data: ["Processed in-flight data", size], persisted_data: ["Persisted in-flight data", size] };
  parts.push(table("Summary over completed checkpoints", ["", "Minimum", "Average", "Maximum", "50 %", "90 %", "99 %", "99.9 %"], Object.entries(names).map(([key, [name, text]]) => [name, ...["min", "avg", "max", "p50", "p90", "p99", "p999"].map((one) => (summary[key][one] === null ? "–" : text(Math.round(summary[key][one]))))]), [1, 2, 3, 4, 5, 6, 7]));
  for (const row of history.filter((one) => Object.keys(one.tasks).length)) parts.push(folded(`Checkpoint ${row.id}: by operator and subtask`, () => [html("p", { class: "soft" }, `Type ${row.checkpoint_type.toLowerCase().replaceAll("_", " ")}, path ${row.external_path ?? "none"}${row.discarded ? ", discarded" : ""}`),
    table("", ["Operator", "Subtask", "Status", "Acknowledged", "End to End Duration", "Checkpointed Data Size", "Full Checkpoint Data Size", "Sync Duration", "Async Duration", "Processed (persisted) in-flight data", "Alignment Duration", "Start Delay", "Unaligned"],
      Object.values(row.tasks).flatMap((task) => operatorRows(task, time)), [1, 3, 4, 5, 6, 7, 8, 9, 10, 11])]));
  return parts;
}
/* Of one operator in one checkpoint: the spread over its subtasks, and a row for each of them. */
function operatorRows(task, time) {
  const { summary } = task, more = task.num_subtasks - task.subtasks.length;
  const { sync, async } = summary.checkpoint_duration, { processed, persisted } = summary.alignment, flight = (one, other) => `${size(one)} (${size(other)})`;
  const spread = (of, text) => (key) => text(Math.round(of[key])), inFlight = (key) => flight(Math.round(processed[key]), Math.round(persisted[key]));
  const spreads = [spread(summary.end_to_end_duration, duration), spread(summary.checkpointed_size, size), spread(summary.state_size, size), spread(sync, duration), spread(async, duration), inFlight, spread(summary.alignment.duration, duration), spread(summary.start_delay, duration)];
  const overAll = task.num_subtasks < 2 ? [] : [["min", "Minimum"], ["avg", "Average"], ["max", "Maximum"]].map(([key, name]) => [task.name, name, "", "", ...spreads.map((text) => text(key)), ""]);
  const each = task.subtasks.map((one) => (one.status === "completed" ? [task.name, one.index, one.status, time(one.ack_timestamp), duration(one.end_to_end_duration), size(one.checkpointed_size), size(one.state_size), duration(one.checkpoint.sync), duration(one.checkpoint.async), flight(one.alignment.processed, one.alignment.persisted), duration(one.alignment.duration), duration(one.start_delay), one.unaligned_checkpoint ? "yes" : "no"] : [task.name, one.index, one.status, ...Array(10).fill("–")]));
  return [...overAll, ...each, ...(more > 0 ? [[task.name, `and ${count(more)} more`, ...Array(11).fill("")]] : [])];
}
