"use strict";
/* Draws the page from its data: nothing else is read, nothing is fetched. Every text comes from the job and is set as
   text, never as markup. A run: lanes, actions (rows), steps (rows and changed cells), arrows, cuts, blocked spans. */
(() => {
const SVG = "http://www.w3.org/2000/svg";
const SIGNS = { crash: "✕", fault: "⚡", complete: "✔", abort: "⊘", commit: "●", snapshot: "◆", trigger: "▷", restore: "↻" };
const IMPORTANT = ["crash", "fault", "restore", "commit", "complete", "abort", "trigger", "snapshot"];
const CONTROL = { "-1": "job manager", "-2": "process", "-3": "fault", "-4": "user" };
const MANY_LANES = 24, EXPORTED_ROWS = 400, LISTED = 150;
const KINDS = [["state", "State by key"], ["position", "Source positions"], ["transaction", "Pending transactions"],
  ["reader", "What a reader sees"], ["pressure", "Back pressure"]];

function html(tag, attributes, ...children) { return made(document.createElement(tag), attributes, children); }
function svg(tag, attributes, ...children) { return made(document.createElementNS(SVG, tag), attributes, children); }
function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return element;
}
const duration = (ns) => {
  if (ns === null || ns === undefined || ns < 0) return "–";
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (ns >= factor) return `${+(ns / factor).toFixed(3)} ${unit}`;
  return `${ns} ns`;
};
const size = (bytes) => {
  for (const [factor, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (bytes >= factor) return `${+(bytes / factor).toFixed(2)} ${unit}`;
  return `${bytes} B`;
};
const count = (number) => number.toLocaleString("en-US");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/* --- a run ------------------------------------------------------------------------------------------------------ */
class Run {
  constructor(data) {
    Object.assign(this, data);
    this.step = -1;
    this.values = new Map(this.before);
    this.changed = new Set();
    this.stepOfRow = new Uint32Array(this.actions.length + 1);
    this.steps.forEach((step, number) => this.stepOfRow.fill(number, step.r[0], step.r[1]));
    this.expanded = new Set();
    this.grouped = this.lanes.length > MANY_LANES;
    this.cellOf = new Map(this.cells.map((cell, number) => [cell.join("\u0000"), number]));
    this.important = this.steps.map((step) => this.rowsOf(step).some((row) => IMPORTANT.includes(row[2])));
    this.index();
    this.lay();
  }
  rowsOf(step) { return this.actions.slice(step.r[0], step.r[1]); }
  /* Arrows by blocks of rows, so that only those in sight are looked at. */
  index() {
    this.blocks = [];
    this.arrows.forEach((arrow, number) => {
      const last = arrow[1] < 0 ? arrow[0] + 1 : arrow[1];
      for (let block = arrow[0] >> 6; block <= last >> 6; block++) (this.blocks[block] ||= []).push(number);
    });
  }
  /* The columns of the diagram: subtasks, or whole vertices when there are very many. */
  lay() {
    this.columns = ["control"]; this.columnOf = [];
    this.lanes.forEach((name, lane) => {
      const vertex = this.vertexOf[lane], grouped = this.grouped && !this.expanded.has(vertex);
      const label = grouped ? `${this.vertices[vertex].name} ×${this.vertices[vertex].parallelism}` : name;
      if (!grouped || lane === 0 || this.vertexOf[lane - 1] !== vertex) this.columns.push(label);
      this.columnOf.push(this.columns.length - 1);
    });
  }
  column(lane) { return lane < 0 ? 0 : this.columnOf[lane]; }
  actor(who) { return who < 0 ? CONTROL[who] : this.lanes[who]; }
  go(step) {
    this.changed.clear();
    while (this.step < step) this.apply(this.steps[++this.step].c, 2);
    while (this.step > step) this.apply([...this.steps[this.step--].c].reverse(), 1);
    if (this.step >= 0) for (const change of this.steps[this.step].c) this.changed.add(change[0]);
  }
  apply(changes, side) {
    for (const change of changes) if (change[side] === null) this.values.delete(change[0]); else this.values.set(change[0], change[side]);
  }
  value(cell) { const number = this.cellOf.get(cell.join("\u0000")); return number === undefined ? undefined : this.values.get(number); }
  time(step) { const row = this.steps[step] && this.actions[Math.min(this.steps[step].r[0], this.actions.length - 1)]; return row ? row[0] : 0; }
}

/* --- the space-time diagram --------------------------------------------------------------------------------------- */
class Diagram {
  constructor(run, go) {
    this.run = run; this.go = go;
    this.head = html("div", { class: "head" });
    this.rows = html("div", { class: "rows" });
    this.chart = html("div", { class: "chart", tabindex: 0, role: "region", "aria-label": "Space-time diagram; the run in words is below" }, this.head, this.rows);
    this.groups = html("div", { class: "tools" });
    this.chart.addEventListener("scroll", () => this.ask());
    this.rows.addEventListener("click", (event) => {
      const row = Math.floor((event.clientY - this.rows.getBoundingClientRect().top) / this.height);
      if (row >= 0 && row < run.actions.length) go(run, run.stepOfRow[row]);
    });
  }
  measure() {
    const width = Math.max(280, this.chart.clientWidth - 2), columns = this.run.columns.length;
    this.narrow = width < 520;
    this.height = this.narrow ? 40 : 23;
    this.gutter = this.narrow ? 6 : 128;
    const room = this.narrow ? width - 12 : Math.min(0.55 * width, columns * 104);
    this.lane = Math.max(this.narrow ? 40 : 46, Math.min(104, (room - (this.narrow ? 0 : 20)) / columns));
    this.right = this.gutter + this.lane * columns;
    const longest = this.run.actions.reduce((most, row) => Math.max(most, row[3].length), 0) + 14;
    this.width = Math.max(width, (this.narrow ? 12 : this.right) + 7.2 * Math.min(longest, 420));
    this.slant = this.run.columns.some((name) => name.length * 6.6 > this.lane - 6);
    const longestName = Math.max(...this.run.columns.map((name) => name.length));
    this.headHeight = this.slant ? Math.min(190, 18 + longestName * 4.4) : 26;
    this.width = Math.max(this.width, this.right + (this.slant ? longestName * 5 : 0));
  }
  x(column) { return this.gutter + this.lane * (column + 0.5); }
  y(row) { return this.height * row + (this.narrow ? 11 : this.height / 2); }
  draw() {
    this.measure();
    this.rows.style.height = `${this.height * this.run.actions.length}px`;
    this.rows.style.width = `${this.width}px`;
    this.head.style.width = `${this.width}px`;
    this.head.replaceChildren(this.names());
    this.groups.replaceChildren(...this.toggles());
    this.render();
  }
  names() {
    const names = this.run.columns.map((name, column) => {
      const x = this.x(column), y = this.headHeight - 8;
      return svg("text", this.slant ? { x, y, transform: `rotate(-40 ${x} ${y})` } : { x, y, "text-anchor": "middle", "font-weight": 600 }, name);
    });
    return svg("svg", { width: this.width, height: this.headHeight, "aria-hidden": true }, names);
  }
  toggles() {
    const run = this.run;
    if (!run.grouped) return [];
    return run.vertices.map((vertex, number) => html("button", {
      class: "small", "aria-pressed": String(run.expanded.has(number)),
      onclick: () => { if (!run.expanded.delete(number)) run.expanded.add(number); run.lay(); this.draw(); },
    }, `${run.expanded.has(number) ? "group" : "expand"} ${vertex.name} ×${vertex.parallelism}`));
  }
  ask() { if (!this.asked) { this.asked = true; requestAnimationFrame(() => { this.asked = false; this.render(); }); } }
  render() {
    const total = this.run.actions.length, top = Math.max(0, this.chart.scrollTop - this.headHeight);
    const first = Math.max(0, Math.floor(top / this.height) - 12);
    const last = Math.min(total, first + Math.ceil((this.chart.clientHeight || 800) / this.height) + 30);
    const picture = this.picture(first, last);
    picture.style.top = `${first * this.height}px`;
    this.rows.replaceChildren(picture);
  }
  /* The rows from first to last; the same for the screen and for a file. */
  picture(first, last, withNames = false) {
    const run = this.run, up = withNames ? this.headHeight : 0, step = run.steps[run.step];
    const parts = [], height = Math.max(1, (last - first) * this.height);
    for (let row = first; row < last; row++) {
      const now = step && row >= step.r[0] && row < step.r[1];
      if (now || run.stepOfRow[row] % 2) parts.push(svg("rect", { class: now ? "current" : "band", x: 0, y: row * this.height, width: this.width, height: this.height }));
    }
    run.columns.forEach((_, column) => parts.push(svg("line", { class: "lane", x1: this.x(column), x2: this.x(column), y1: first * this.height, y2: last * this.height })));
    parts.push(...this.spans(first, last), ...this.arrows(first, last));
    for (let row = first; row < last; row++) parts.push(...this.row(row));
    parts.push(...this.cuts(first, last));
    const body = svg("g", { transform: `translate(0 ${up - first * this.height})` }, parts);
    const hatch = svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { class: "hatchline", x1: 0, y1: 0, x2: 0, y2: 6 })));
    return svg("svg", { width: this.width, height: height + up, viewBox: `0 0 ${this.width} ${height + up}`, "aria-hidden": true },
      hatch, withNames ? this.names() : null, body);
  }
  row(number) {
    const run = this.run, [time, who, kind, text, dies] = run.actions[number], y = this.y(number), x = this.x(run.column(who));
    const parts = [], step = run.stepOfRow[number], begins = run.steps[step].r[0] === number;
    const sign = SIGNS[dies ? "crash" : kind], said = `${run.actor(who)}: ${text}`;
    if (dies && who < 0 && who !== -1) parts.push(svg("line", { class: "dead", x1: this.gutter, x2: this.right, y1: y, y2: y }));
    parts.push(sign ? svg("text", { class: `sign halo ${dies ? "crash" : kind}`, x, y: y + 4.5 }, sign) : svg("circle", { class: "dot", cx: x, cy: y, r: 3 }));
    const name = `${begins ? `${step + 1}  +${duration(time)}` : ""}`;
    if (this.narrow) parts.push(svg("text", { x: 8, y: y + 21, class: "halo" }, begins ? `${step + 1}. ${said}` : said));
    else parts.push(svg("text", { class: "soft", x: 8, y: y + 4 }, name), svg("text", { x: this.right + 10, y: y + 4 }, said));
    return parts;
  }
  spans(first, last) {
    return this.run.spans.filter(([, from, to]) => to >= first && from < last).map(([channel, from, to]) => {
      const [sender, receiver] = this.run.channels[channel] || [-1, -1];
      const side = this.run.column(sender) <= this.run.column(receiver) ? -11 : 5;
      return svg("rect", { class: "blocked", x: this.x(this.run.column(receiver)) + side, y: this.y(from), width: 6, height: Math.max(4, this.y(to) - this.y(from)) },
        svg("title", {}, `${this.run.actor(receiver)} has blocked the channel from ${this.run.actor(sender)}`));
    });
  }
  arrows(first, last) {
    const seen = new Set(), parts = [];
    for (let block = first >> 6; block <= last >> 6; block++) for (const number of this.run.blocks[block] || []) seen.add(number);
    for (const number of seen) {
      const [from, to, sender, receiver, label, barrier, fate, checkpoint] = this.run.arrows[number];
      if ((to < 0 ? from + 1 : to) < first || from >= last) continue;
      const x1 = this.x(this.run.column(sender)), y1 = this.y(from);
      if (to < 0) {
        const x2 = x1 + 0.42 * (this.x(this.run.column(receiver)) - x1), y2 = y1 + 0.9 * this.height;
        parts.push(svg("g", {}, svg("title", {}, `${label}: never taken`), svg("line", { class: "lost", x1, y1, x2, y2 }), svg("text", { class: "soft halo", x: x2 - 4, y: y2 + 4 }, "×")));
        continue;
      }
      const kind = fate === 1 ? "orphan" : fate === 2 ? "flight" : barrier ? "barrier" : "records";
      const x2 = this.x(this.run.column(receiver)), y2 = this.y(to), way = x2 > x1 ? 1 : -1;
      const named = fate === 1 ? `${label}: orphan of checkpoint ${checkpoint}` : fate === 2 ? `${label}: in flight at checkpoint ${checkpoint}` : label;
      const at = fate === 1 ? 0.5 : 0.64;
      parts.push(svg("g", {}, svg("title", {}, named), svg("line", { class: kind, x1, y1, x2: x2 - 9 * way, y2 }),
        svg("path", { class: `tip-${kind}`, d: `M${x2 - 3 * way},${y2} l${-9 * way},-4.5 v9 z` }),
        barrier && fate === 0 ? null : svg("text", { class: `halo${fate === 1 ? " crash" : ""}`, "text-anchor": "middle", "font-size": fate ? 11.5 : 10.5, x: x1 + at * (x2 - x1), y: y1 + at * (y2 - y1) - 4 },
          fate === 1 ? `◎ ${label.slice(0, 22)}` : label.slice(0, Math.max(3, Math.floor(this.lane / 6))))));
    }
    return parts;
  }
  cuts(first, last) {
    const parts = [];
    for (const cut of this.run.cuts) {
      const points = this.points(cut);
      if (!points.length || points.every(([, row]) => row < first) || points.every(([, row]) => row > last)) continue;
      const half = this.lane / 2, path = [];
      points.forEach(([column, row], at) => {
        const y = this.y(row) + this.height / 2 - (this.narrow ? 0 : 1), x = this.x(column);
        path.push(`${at ? "L" : "M"}${x - half * 0.62},${y} L${x + half * 0.62},${y}`);
      });
      const [column, row] = points[points.length - 1], state = cut.state === "completed" ? "" : ` ${cut.state}`;
      const note = cut.orphans ? `, ${plural(cut.orphans, "orphan")}` : cut.captured ? `, ${cut.captured} stored in flight` : cut.inTransit ? `, ${cut.inTransit} in transit` : "";
      parts.push(svg("path", { class: `cut ${cut.state}`, d: path.join(" ") }, svg("title", {}, `the cut of checkpoint ${cut.id}`)),
        svg("text", { class: "cutname halo", "text-anchor": "end", x: this.right - 2, y: this.y(row) + this.height / 2 + 13 }, `cut ${cut.id}${state}${note}`));
    }
    return parts;
  }
  points(cut) {
    const rows = new Map();
    for (const [lane, row] of cut.at) { const column = this.run.column(lane); rows.set(column, Math.max(row, rows.get(column) ?? -1)); }
    return [...rows].sort((one, other) => one[0] - other[0]);
  }
  follow() {
    const step = this.run.steps[this.run.step];
    if (step) {
      const y = step.r[0] * this.height, view = this.chart.clientHeight - this.headHeight;
      if (y < this.chart.scrollTop + 20 || y > this.chart.scrollTop + view - 60) this.chart.scrollTop = Math.max(0, y - view / 3);
    }
    this.render();
  }
  exported() {
    const step = this.run.steps[Math.max(0, this.run.step)], middle = step ? step.r[0] : 0;
    const first = Math.max(0, Math.min(middle - EXPORTED_ROWS / 2, this.run.actions.length - EXPORTED_ROWS));
    return this.picture(first, Math.min(this.run.actions.length, first + EXPORTED_ROWS), true);
  }
}

/* --- the job graph ------------------------------------------------------------------------------------------------ */
class Graph {
  constructor(run) { this.run = run; this.place = html("div", { class: "picture", tabindex: 0, role: "region" }); }
  layers() {
    const run = this.run, depth = new Map(), pairs = run.channels.map(([from, to]) => [run.vertexOf[from], run.vertexOf[to]]);
    run.vertices.forEach((_, vertex) => depth.set(vertex, 0));
    for (let round = 0; round < run.vertices.length; round++) {
      let moved = false;
      for (const [from, to] of pairs) if (from < to && depth.get(to) < depth.get(from) + 1) { depth.set(to, depth.get(from) + 1); moved = true; }
      if (!moved) break;
    }
    return depth;
  }
  draw() {
    const run = this.run, depth = this.layers(), nodes = [], nodeOf = [], next = new Map(), width = 148, gap = 96, high = 38;
    const grouped = (vertex) => run.vertices[vertex].parallelism > 8 && !run.expanded.has(vertex);
    run.lanes.forEach((name, lane) => {
      const vertex = run.vertexOf[lane];
      if (grouped(vertex) && lane && run.vertexOf[lane - 1] === vertex) { nodeOf[lane] = nodes.length - 1; nodes[nodes.length - 1].lanes.push(lane); return; }
      const layer = depth.get(vertex), at = next.get(layer) || 0;
      next.set(layer, at + 1);
      nodeOf[lane] = nodes.length;
      nodes.push({ x: 12 + layer * (width + gap), y: 14 + at * (high + 18), name: grouped(vertex) ? `${run.vertices[vertex].name} ×${run.vertices[vertex].parallelism}` : name, lanes: [lane] });
    });
    const tallest = Math.max(...next.values());
    for (const node of nodes) { const layer = Math.round((node.x - 12) / (width + gap)); node.y += (tallest - next.get(layer)) * (high + 18) / 2; }
    const lines = new Map();
    run.channels.forEach(([from, to], channel) => {
      const key = `${nodeOf[from]} ${nodeOf[to]}`, line = lines.get(key) || { from: nodes[nodeOf[from]], to: nodes[nodeOf[to]], queue: [], blocked: 0, channels: 0 };
      const queue = run.value(["queue", String(channel), ""]);
      line.channels++;
      if (queue !== undefined) line.queue.push(queue);
      if (run.value(["blocked", String(channel), ""]) !== undefined) line.blocked++;
      lines.set(key, line);
    });
    const acting = new Set(), step = run.steps[run.step], parts = [], twin = [];
    if (step) for (const row of run.rowsOf(step)) acting.add(row[1]);
    for (const { from, to, queue, blocked, channels } of lines.values()) {
      const x1 = from.x + width, y1 = from.y + high / 2, x2 = to.x, y2 = to.y + high / 2, back = x2 <= x1;
      const path = back ? `M${x1},${y1} C${x1 + 50},${y1 + 90} ${x2 - 50},${y2 + 90} ${x2},${y2}` : `M${x1},${y1} C${x1 + gap / 2},${y1} ${x2 - gap / 2},${y2} ${x2},${y2}`;
      const said = [queue.length ? (channels === 1 ? queue[0] : `${plural(queue.length, "channel")} filled`) : null, blocked ? (channels === 1 ? "⛔ blocked" : `⛔ ${blocked} blocked`) : null].filter(Boolean).join(" ");
      parts.push(svg("path", { class: `channel${blocked ? " stopped" : queue.length ? " full" : ""}`, d: path }));
      if (said) parts.push(svg("text", { class: "halo", "text-anchor": "middle", "font-size": 11, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5 }, said.length > 46 ? `${said.slice(0, 45)}…` : said, svg("title", {}, said)));
      if (said) twin.push(`${from.name} → ${to.name}: ${said}`);
    }
    for (const node of nodes) {
      const pressed = node.lanes.filter((lane) => run.value(["pressure", run.lanes[lane], ""]) !== undefined).length;
      const acts = node.lanes.some((lane) => acting.has(lane));
      const label = node.name.length > 20 ? `${node.name.slice(0, 19)}…` : node.name;
      parts.push(svg("g", {}, svg("title", {}, node.name), svg("rect", { class: `task${acts ? " acts" : ""}`, x: node.x, y: node.y, width, height: high, rx: 6 }),
        svg("text", { x: node.x + width / 2, y: node.y + (pressed ? 16 : 23), "text-anchor": "middle" }, label),
        pressed ? svg("text", { class: "crash", x: node.x + width / 2, y: node.y + 31, "text-anchor": "middle", "font-size": 11 }, node.lanes.length > 1 ? `▲ ${pressed} with full outputs` : "▲ back pressure") : null));
      if (acts) twin.push(`${node.name} acts`);
      if (pressed) twin.push(`${node.name}: outputs are full (back pressure)`);
    }
    const wide = Math.max(...nodes.map((node) => node.x)) + width + 14, tall = Math.max(...nodes.map((node) => node.y)) + high + 44;
    this.svg = svg("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `Job graph. ${twin.join("; ") || "All channels are empty."}` }, parts);
    this.place.replaceChildren(this.svg);
    this.place.setAttribute("aria-label", "Job graph");
  }
  exported() { return this.svg.cloneNode(true); }
}

/* --- tables ------------------------------------------------------------------------------------------------------- */
function table(caption, heads, rows, numbers = []) {
  const cell = (tag) => (text, at) => html(tag, { class: numbers.includes(at) ? "number" : null, scope: tag === "th" ? "col" : null }, text instanceof Node ? text : String(text ?? "–"));
  return html("div", { class: "wide" }, html("table", {}, html("caption", { class: "soft" }, caption), html("thead", {}, html("tr", {}, heads.map(cell("th")))), html("tbody", {}, rows.map((row) => html("tr", {}, row.map(cell("td")))))));
}
function cellTables(run, other) {
  const parts = [];
  for (const [kind, title] of KINDS) {
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
    rows.sort((one, two) => (one[0].join(" ") < two[0].join(" ") ? -1 : 1));
    parts.push(html("h3", {}, title), html("div", { class: "wide" }, html("table", { class: "cells" }, html("tbody", {}, rows.slice(0, LISTED).map(([cell, text, changed, differs]) =>
      html("tr", { class: differs ? "differs" : changed ? "changed" : null }, html("td", {}, cell[1]), html("td", { class: "long" }, cell[2]), html("td", { class: "long" }, kind === "reader" ? (text === "–" ? "not seen" : text === "1" ? "once" : text) : text)))))));
    if (rows.length > LISTED) parts.push(html("p", { class: "soft" }, `and ${count(rows.length - LISTED)} more`));
  }
  return parts.length ? parts : [html("p", { class: "soft" }, "no state yet")];
}
function checkpointTables(checkpoints) {
  if (!checkpoints) return [];
  const { counts, history, summary, configuration } = checkpoints, time = (ns) => (ns < 0 ? "–" : duration(ns - (checkpoints.started ?? 0)));
  const parts = [html("p", {}, `Triggered ${counts.total}, in progress ${counts.in_progress}, completed ${counts.completed}, failed ${counts.failed}, restored ${counts.restored}.`),
    html("p", { class: "soft" }, `Configuration: mode ${configuration.mode || "none"} (${configuration.protocol}), interval ${configuration.interval_records ? `${configuration.interval_records} records` : duration(configuration.interval)}, timeout ${duration(configuration.timeout)}, min pause ${duration(configuration.min_pause)}, max concurrent ${configuration.max_concurrent}, retained ${configuration.retained}.`)];
  if (history.length) parts.push(table("History", ["ID", "Status", "Acknowledged", "Trigger Time", "Latest Acknowledgement", "End to End Duration", "Checkpointed Data Size", "Full Checkpoint Data Size", "Processed (persisted) in-flight data", "Orphans", "Why it failed"],
    history.slice(0, LISTED).map((row) => [row.id + (row.is_savepoint ? " (savepoint)" : ""), row.status.toLowerCase(), `${row.num_acknowledged_subtasks}/${row.num_subtasks}`, time(row.trigger_timestamp), time(row.latest_ack_timestamp), duration(row.end_to_end_duration), size(row.checkpointed_size), size(row.state_size), `${size(row.processed_data)} (${size(row.persisted_data)})`, row.orphans, row.failure_message || ""]), [0, 2, 3, 4, 5, 6, 7, 8, 9]));
  const names = { end_to_end_duration: ["End to End Duration", duration], checkpointed_size: ["Checkpointed Data Size", size], state_size: ["Full Checkpoint Data Size", size], processed_data: ["Processed in-flight data", size], persisted_data: ["Persisted in-flight data", size] };
  parts.push(table("Summary over completed checkpoints", ["", "Minimum", "Average", "Maximum", "50 %", "90 %", "99 %", "99.9 %"], Object.entries(names).map(([key, [name, text]]) => [name, ...["min", "avg", "max", "p50", "p90", "p99", "p999"].map((one) => (summary[key][one] === null ? "–" : text(Math.round(summary[key][one]))))]), [1, 2, 3, 4, 5, 6, 7]));
  for (const row of history.slice(0, 20)) parts.push(html("details", {}, html("summary", {}, `Checkpoint ${row.id}: by operator and subtask`), table("", ["Operator", "Subtask", "Status", "Acknowledged", "End to End Duration", "Checkpointed Data Size", "Sync Duration", "Async Duration", "Alignment Duration", "Start Delay", "Unaligned"],
    Object.values(row.tasks).flatMap((task) => task.subtasks.slice(0, 64).map((one) => (one.status === "completed" ? [task.name, one.index, one.status, time(one.ack_timestamp), duration(one.end_to_end_duration), size(one.checkpointed_size), duration(one.checkpoint.sync), duration(one.checkpoint.async), duration(one.alignment.duration), duration(one.start_delay), one.unaligned_checkpoint ? "yes" : "no"] : [task.name, one.index, one.status, ...Array(8).fill("–")]))), [1, 3, 4, 5, 6, 7, 8, 9])));
  return parts;
}
function curve(title, unit, values, from, to) {
  const width = 380, height = 86, most = Math.max(1, ...values), x = (at) => 46 + (at / Math.max(1, values.length - 1)) * (width - 60), y = (value) => height - 20 - (value / most) * (height - 38);
  const path = values.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: from ${values[0] ?? 0} to ${values[values.length - 1] ?? 0}, at most ${most} ${unit}` },
    svg("text", { x: 4, y: 12, "font-weight": 600 }, title), svg("text", { class: "soft", x: 42, y: y(most) + 4, "text-anchor": "end" }, count(most)), svg("text", { class: "soft", x: 42, y: y(0) + 4, "text-anchor": "end" }, "0"),
    svg("line", { class: "axis", x1: 46, x2: width - 14, y1: y(0), y2: y(0) }), values.length > 1 ? svg("path", { class: "curve", d: path }) : svg("circle", { class: "bar", cx: x(0), cy: y(values[0] ?? 0), r: 3 }),
    svg("text", { class: "soft", x: 46, y: height - 6 }, from), svg("text", { class: "soft", x: width - 14, y: height - 6, "text-anchor": "end" }, to));
}
function seriesPart(run) {
  const series = run.series, durations = run.checkpoints ? [...run.checkpoints.history].reverse().map((row) => Math.max(0, row.end_to_end_duration)) : [];
  const ends = [`+${duration(series.from)}`, `+${duration(series.from + series.width * series.read.length)}`], ids = run.checkpoints ? run.checkpoints.history.map((row) => `checkpoint ${row.id}`) : [];
  const shown = [["Throughput: records read", "records", series.read, ...ends], ["Lag: records under way", "records", series.queued, ...ends], ["Back pressure: blocked channels", "channels", series.blocked, ...ends],
    ["End to end duration, ns", "ns", durations, ids[ids.length - 1], ids[0]]].filter(([, , values]) => values.length);
  const rows = series.read.map((read, at) => [`+${duration(series.from + at * series.width)}`, read, series.queued[at], series.blocked[at]]);
  return [html("div", { class: "tools" }, shown.map((one) => html("div", { class: "picture" }, curve(...one)))),
    html("details", {}, html("summary", {}, "The series as a table"), table("", ["from", "records read", "records under way", "blocked channels"], rows, [1, 2, 3]))];
}
function endingsPart(endings) {
  if (!endings) return [];
  const most = Math.max(1, ...endings.list.map((one) => one.events)), width = 560, rows = endings.list.slice(0, 40);
  const picture = svg("svg", { width, height: rows.length * 34 + 10, viewBox: `0 0 ${width} ${rows.length * 34 + 10}`, role: "img", "aria-label": endings.text }, rows.map((one, at) => {
    const length = 40 + (one.events / most) * 220, y = at * 34 + 18;
    return svg("g", {}, svg("circle", { class: "dot", cx: 14, cy: y, r: 4 }), svg("line", { class: one.wrong ? "orphan" : "mark", x1: 20, x2: 20 + length, y1: y, y2: y }),
      svg("text", { class: `sign ${one.wrong ? "crash" : "complete"}`, x: 32 + length, y: y + 5 }, one.wrong ? "✕" : "✔"),
      svg("text", { x: 48 + length, y: y + 4 }, `${one.wrong ? "wrong" : "right"}: ${one.state}, ${plural(one.events, "event")}, ${plural(one.faults, "fault")}`));
  }));
  return [html("p", { class: "verdict" }, endings.text), html("div", { class: "picture" }, picture), table("", ["Ending", "Faults", "Events", "What readers see"], rows.map((one) => [(one.wrong ? "wrong: " : "right: ") + one.state, one.faults, one.events, one.rows]), [1, 2])];
}

/* --- files -------------------------------------------------------------------------------------------------------- */
function standalone(picture) {
  const style = getComputedStyle(document.documentElement);
  const rules = document.querySelector("style").textContent.match(/^svg[^}]*}|svg [^{}]*{[^}]*}/gm).join("\n").replace(/var\((--[a-z]+)\)/g, (_, name) => style.getPropertyValue(name));
  picture.setAttribute("xmlns", SVG);
  picture.prepend(svg("style", {}, rules), svg("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--paper") }));
  return new XMLSerializer().serializeToString(picture);
}
function save(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
function files(name, picture) {
  const asSvg = () => save(new Blob([standalone(picture())], { type: "image/svg+xml" }), `${name}.svg`);
  const asPng = () => {
    const drawn = picture(), image = new Image(), url = URL.createObjectURL(new Blob([standalone(drawn)], { type: "image/svg+xml" }));
    image.onload = () => {
      const canvas = html("canvas", { width: 2 * image.width, height: 2 * image.height });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(blob, `${name}.png`));
      URL.revokeObjectURL(url);
    };
    image.src = url;
  };
  return [html("button", { class: "small", onclick: asSvg, "aria-label": `Save ${name} as SVG` }, "SVG"), html("button", { class: "small", onclick: asPng, "aria-label": `Save ${name} as PNG` }, "PNG")];
}

/* --- the page ----------------------------------------------------------------------------------------------------- */
function legend() {
  const line = (kind, text) => html("li", {}, svg("svg", { width: 30, height: 10, "aria-hidden": true }, svg("line", { class: kind, x1: 1, x2: 29, y1: 5, y2: 5 })), " ", text);
  const sign = (mark, text) => html("li", {}, html("b", {}, mark), " ", text);
  return html("ul", { class: "legend" }, line("records", "record, sent and taken"), line("barrier", "barrier of a checkpoint"), line("cut", "cut of a checkpoint: what lies above it is in the checkpoint"),
    line("orphan", "◎ orphan: taken before the cut, sent after it, so it comes again after a restore"), line("flight", "in flight across the cut: stored in the checkpoint, or lost"), line("lost", "× never taken"),
    sign("▨", "blocked channel, from block to unblock"), sign("▷", "checkpoint triggered"), sign("◆", "snapshot taken or acknowledged"), sign("✔", "checkpoint complete"), sign("⊘", "checkpoint given up"),
    sign("●", "commit: readers see something new"), sign("⚡", "fault"), sign("✕", "crash"), sign("↻", "restore"));
}
function main(data) {
  const page = document.getElementById("page"), runs = data.runs.map((one) => new Run(one)), two = runs.length > 1;
  const rows = data.pairs || runs[0].steps.map((_, step) => [step]);
  let at = -1, playing = null;
  const diagrams = runs.map((run) => new Diagram(run, (which, step) => go(rows.findIndex((row) => row[runs.indexOf(which)] === step))));
  const graphs = runs.map((run) => new Graph(run));
  const nows = runs.map(() => html("div", { class: "now" })), states = runs.map(() => html("div")), words = runs.map(() => html("pre", { tabindex: 0 }));
  const slider = html("input", { type: "range", min: 0, max: Math.max(0, rows.length - 1), value: 0, "aria-label": "Step", oninput: () => go(+slider.value) });
  const told = html("output", { "aria-live": "polite" });

  function nowOf(run) {
    const step = run.steps[run.step];
    if (!step) return [html("p", { class: "soft" }, "nothing has happened here yet")];
    const parts = [html("ul", {}, run.rowsOf(step).map(([time, who, kind, text, dies]) => html("li", {}, html("b", { class: dies || kind === "fault" ? "bad" : null }, run.actor(who)), ` ${text}`)))];
    if (!run.rowsOf(step).length) parts[0] = html("p", { class: "soft" }, "only state changes");
    if (run.crash && step.x) parts.push(html("p", {}, html("span", { class: "soft" }, "crash it here: "), html("code", {}, run.crash.replace("@FAULT@", step.x)), " ",
      html("button", { class: "small", onclick: () => navigator.clipboard && navigator.clipboard.writeText(run.crash.replace("@FAULT@", step.x)) }, "copy")));
    return parts;
  }
  function wordsOf(run) {
    const from = Math.max(0, run.step - LISTED), to = Math.min(run.steps.length, run.step + LISTED), lines = [];
    for (let step = from; step < to; step++) for (const [time, who, , text] of run.rowsOf(run.steps[step])) lines.push(`${step === run.step ? "→" : " "} ${step + 1}  +${duration(time)}  ${run.actor(who)}: ${text}`);
    return lines.join("\n");
  }
  function go(to) {
    if (to < 0 || !rows.length) return;
    at = Math.min(to, rows.length - 1);
    runs.forEach((run, number) => run.go(rows[at][number]));
    slider.value = at;
    const said = `step ${at + 1} of ${rows.length}, +${duration(Math.max(...runs.map((run) => run.time(run.step))))}`;
    told.textContent = said;
    slider.setAttribute("aria-valuetext", said);
    runs.forEach((run, number) => {
      nows[number].replaceChildren(...nowOf(run));
      states[number].replaceChildren(...cellTables(run, two ? runs[1 - number] : null));
      if (details.open) words[number].textContent = wordsOf(run);
      graphs[number].draw();
      diagrams[number].follow();
    });
    history.replaceState(null, "", `#step=${at + 1}`);
  }
  const jump = (way) => { for (let to = at + way; to >= 0 && to < rows.length; to += way) if (runs.some((run, number) => run.important[rows[to][number]] && rows[to][number] !== (rows[to - 1] || [])[number])) return go(to); };
  const play = () => { playing = playing ? clearInterval(playing) : setInterval(() => (at < rows.length - 1 ? go(at + 1) : play()), 600); playButton.textContent = playing ? "pause" : "play"; };
  const playButton = html("button", { onclick: play }, "play");
  const theme = (name) => { document.documentElement.dataset.theme = name; };
  const themeButton = html("button", { onclick: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"), title: "t" }, "light / dark");
  const button = (text, title, act) => html("button", { onclick: act, "aria-label": title, title }, text);
  const keys = { ArrowRight: () => go(at + 1), ArrowLeft: () => go(at - 1), Home: () => go(0), End: () => go(rows.length - 1), n: () => jump(1), p: () => jump(-1), PageDown: () => go(at + 10), PageUp: () => go(Math.max(0, at - 10)), " ": play, t: () => themeButton.click() };
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !keys[event.key]) return;
    const tag = event.target.tagName;
    if (event.target === slider && event.key !== "n" && event.key !== "p" && event.key !== "t") return;
    if ((tag === "BUTTON" || tag === "SUMMARY") && event.key === " ") return;
    event.preventDefault(); keys[event.key]();
  });
  const details = html("details", { ontoggle: () => details.open && runs.forEach((run, number) => { words[number].textContent = wordsOf(run); }) }, html("summary", {}, "The run in words, around this step"),
    html("div", { class: two ? "runs two" : "runs" }, words));
  const each = (part) => html("div", { class: two ? "runs two" : "runs" }, runs.map((run, number) => html("section", { "aria-label": run.name }, two ? html("h3", {}, run.name) : null, part(run, number))));
  const section = (title, ...parts) => (parts.flat().length ? html("section", {}, html("h2", {}, title), parts) : null);

  page.append(...[html("h1", {}, data.title), ...data.lines.map((line) => html("p", { class: line.kind }, line.text)),
    data.comparison ? table("Measured in both runs", data.comparison.heads, data.comparison.rows, data.comparison.rows[0].map((_, column) => column).slice(1)) : null,
    html("div", { class: "player", role: "toolbar", "aria-label": "Steps" }, button("|◀", "First step (Home)", () => go(0)), button("◀", "Step back (left arrow)", () => go(at - 1)), slider, button("▶", "Step forward (right arrow)", () => go(at + 1)), button("▶|", "Last step (End)", () => go(rows.length - 1)),
      button("◀◀", "Previous event that matters (p)", () => jump(-1)), button("▶▶", "Next event that matters (n)", () => jump(1)), playButton, themeButton, told),
    each((run, number) => nows[number]),
    section("Space and time", legend(), each((run, number) => [html("div", { class: "tools" }, files("space-time diagram", () => diagrams[number].exported()), diagrams[number].groups), diagrams[number].chart]), details),
    section("Job graph", each((run, number) => [html("div", { class: "tools" }, files("job graph", () => graphs[number].exported())), graphs[number].place, html("p", { class: "soft" }, "A thick line: a channel with records or barriers in it. A dashed one: blocked. ▲: back pressure.")])),
    section("State at this step", each((run, number) => states[number])),
    runs.some((run) => run.violations.length) ? section("Invariants", each((run) => html("ul", {}, run.violations.map((one) => html("li", { class: "bad" }, `${one.name}: ${one.text} `, one.step >= 0 ? html("button", { class: "small", onclick: () => go(rows.findIndex((row) => row[runs.indexOf(run)] === one.step)) }, `step ${one.step + 1}`) : null))))) : null,
    runs.some((run) => run.ledger) ? section("Ledger: from an output to its source", each((run) => ledgerPart(run))) : null,
    runs.some((run) => run.checkpoints) ? section("Checkpoints", each((run) => checkpointTables(run.checkpoints))) : null,
    section("Over virtual time", each((run) => seriesPart(run))),
    data.endings ? section("All endings", endingsPart(data.endings)) : null,
    section("Keys", html("p", {}, "← → step · Page Up/Down ten steps · Home/End · n, p: next and previous event that matters · space: play · t: light or dark. Click a row to go there."))].filter(Boolean));

  function ledgerPart(run) {
    if (!run.ledger) return html("p", { class: "soft" }, "this run keeps no ledger; add --ledger");
    const trail = html("p", { class: "now", "aria-live": "polite" }, "Choose a row to see where it comes from.");
    const toStep = (rowsRead) => rowsRead.map((row) => run.stepOfRow[row]);
    const rowsOfLedger = run.ledger.outputs.slice(0, LISTED).map((one) => {
      const show = () => {
        const reads = toStep(run.reads[one.source] || []);
        trail.replaceChildren(`${one.row} in ${one.sink} comes from ${one.cause}. ${one.how}. `, ...reads.map((step, number) => html("button", { class: "small", onclick: () => go(rows.findIndex((row) => row[runs.indexOf(run)] === step)) }, `${number ? "read again" : "read"} at step ${step + 1}`)));
      };
      return html("tr", { tabindex: 0, onclick: show, onkeydown: (event) => event.key === "Enter" && show() }, [one.sink, one.row, one.cause, one.checkpoint ?? "at once", one.attempt].map((text) => html("td", {}, String(text))));
    });
    return [run.ledger.paragraphs.map((text) => html("p", { class: "why" }, text)), run.ledger.paragraphs.length ? null : html("p", { class: "good" }, run.ledger.problem || "Each record has its effects as often as it should."),
      html("div", { class: "wide" }, html("table", {}, html("thead", {}, html("tr", {}, ["Sink", "Row", "Source record", "Checkpoint", "Attempt"].map((text) => html("th", {}, text)))), html("tbody", {}, rowsOfLedger))), trail].flat().filter(Boolean);
  }
  if (!document.documentElement.dataset.theme) theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const resized = () => diagrams.forEach((one) => one.draw());
  resized();
  addEventListener("resize", resized);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  const asked = /step=(\d+)/.exec(location.hash);
  go(asked ? +asked[1] - 1 : data.begin);
  document.documentElement.dataset.ready = "yes";
  window.weir = { go, runs, rows, get at() { return at; }, diagrams };
}
async function load() {
  const place = document.getElementById("data"), text = place.textContent;
  if (place.dataset.form !== "gzip") return JSON.parse(text);
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}
load().then(main);
})();
