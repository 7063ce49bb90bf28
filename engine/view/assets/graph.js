/* The job graph, with the queues of its channels. A node is a column of the space-time diagram. */
const NODE = { width: 148, height: 38, gap: 96, between: 18 };
/* A wide graph becomes smaller until its names would not be readable; then it scrolls. */
const LEAST_SCALE = 0.7;
/* Of a graph with more lines, only the words tell what is in its channels: labels would cover each other. */
const MOST_LABELS = 8;
class Graph {
  constructor(run) {
    this.run = run;
    this.place = html("div", { class: "picture", tabindex: 0, role: "region", "aria-label": "Job graph" });
    this.words = html("ul", {});
    this.lay();
  }
  layers() {
    const run = this.run, depth = run.vertices.map(() => 0), pairs = new Map(run.channels.map(([from, to]) => [`${run.vertexOf[from]} ${run.vertexOf[to]}`, [run.vertexOf[from], run.vertexOf[to]]]));
    for (let round = 0, moved = true; moved && round < run.vertices.length; round++) {
      moved = false;
      for (const [from, to] of pairs.values()) if (from < to && depth[to] < depth[from] + 1) { depth[to] = depth[from] + 1; moved = true; }
    }
    return depth;
  }
  /* Where nodes and lines are; until columns change. */
  lay() {
    const run = this.run, depth = this.layers(), filled = new Map(), lines = new Map();
    this.nodes = run.columns.map(({ vertex, name, lanes }) => {
      const layer = depth[vertex], at = filled.get(layer) || 0;
      filled.set(layer, at + 1);
      return { layer, at, name, lanes };
    });
    const tallest = Math.max(...filled.values()), step = NODE.height + NODE.between;
    for (const node of this.nodes) {
      node.x = 12 + node.layer * (NODE.width + NODE.gap);
      node.y = 14 + (node.at + (tallest - filled.get(node.layer)) / 2) * step;
    }
    run.channels.forEach(([from, to], channel) => {
      const key = `${run.columnOf[from]} ${run.columnOf[to]}`, line = lines.get(key) || { from: this.nodes[run.columnOf[from]], to: this.nodes[run.columnOf[to]], queues: [], blocked: [], channels: 0 };
      line.channels++;
      for (const [kind, cells] of [["queue", line.queues], ["blocked", line.blocked]]) {
        const cell = run.cellOf.get([kind, String(channel), ""].join("\u0000"));
        if (cell !== undefined) cells.push(cell);
      }
      lines.set(key, line);
    });
    this.lines = [...lines.values()];
    this.pressure = new Map(run.lanes.map((name, lane) => [lane, run.cellOf.get(["pressure", name, ""].join("\u0000"))]).filter(([, cell]) => cell !== undefined));
    this.wide = Math.max(...this.nodes.map((node) => node.x)) + NODE.width + 14;
    this.tall = Math.max(...this.nodes.map((node) => node.y)) + NODE.height + (this.lines.some(({ from, to }) => to.x <= from.x) ? 70 : 20);
  }
  draw() {
    const run = this.run, dead = run.dead(), acting = new Set(), step = run.steps[run.step], parts = [], labels = [], twin = [];
    if (step) for (const row of run.rowsOf(step)) acting.add(row[1]);
    for (const { from, to, queues, blocked, channels } of this.lines) {
      const queue = queues.map((cell) => run.values.get(cell)).filter((text) => text !== undefined), stopped = blocked.filter((cell) => run.values.has(cell)).length;
      const x1 = from.x + NODE.width, y1 = from.y + NODE.height / 2, x2 = to.x, y2 = to.y + NODE.height / 2, back = x2 <= x1;
      const path = back ? `M${x1},${y1} C${x1 + 50},${y1 + 90} ${x2 - 50},${y2 + 90} ${x2},${y2}` : `M${x1},${y1} C${x1 + NODE.gap / 2},${y1} ${x2 - NODE.gap / 2},${y2} ${x2},${y2}`;
      const said = [queue.length ? (channels === 1 ? queue[0] : `${plural(queue.length, "channel")} filled`) : null, stopped ? (channels === 1 ? "▨ blocked" : `▨ ${stopped} blocked`) : null].filter(Boolean).join(" ");
      parts.push(svg("path", { class: `channel${stopped ? " stopped" : queue.length ? " full" : ""}`, d: path }));
      if (!said) continue;
      if (this.lines.length <= MOST_LABELS) labels.push(svg("text", { class: "halo", "text-anchor": "middle", "font-size": 11, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5 }, shortened(said, 46), svg("title", {}, said)));
      twin.push(`${from.name} → ${to.name}: ${said}`);
    }
    for (const node of this.nodes) {
      const pressed = node.lanes.filter((lane) => run.values.has(this.pressure.get(lane))).length, acts = node.lanes.some((lane) => acting.has(lane)), died = node.lanes.filter((lane) => dead.has(lane)).length;
      /* The number of the subtask stays. */
      const [number] = /(\[[^\]]*\]| ×\d+)?$/.exec(node.name), label = shortened(node.name.slice(0, node.name.length - number.length), 20 - number.length) + number, middle = node.x + NODE.width / 2, many = node.lanes.length > 1;
      const mark = died ? (many ? `✕ ${died} dead` : "✕ dead") : pressed ? (many ? `▲ ${pressed} with full outputs` : "▲ back pressure") : null;
      parts.push(svg("g", {}, svg("title", {}, node.name), svg("rect", { class: `task${acts ? " acts" : ""}${died ? " dead" : ""}`, x: node.x, y: node.y, width: NODE.width, height: NODE.height, rx: 6 }),
        svg("text", { x: middle, y: node.y + (mark ? 16 : 23), "text-anchor": "middle" }, label),
        mark ? svg("text", { class: "crash", x: middle, y: node.y + 31, "text-anchor": "middle", "font-size": 11 }, mark) : null));
      if (acts) twin.push(`${node.name} acts`);
      if (died) twin.push(`${node.name}: ${many ? `${died} subtasks are dead` : "is dead"}`);
      if (pressed) twin.push(`${node.name}: outputs are full (back pressure)`);
    }
    this.svg = svg("svg", { width: this.wide, height: this.tall, viewBox: `0 0 ${this.wide} ${this.tall}`, style: `max-width: max(100%, ${Math.round(LEAST_SCALE * this.wide)}px); height: auto`, role: "img", "aria-label": `Job graph. ${twin.join("; ") || "All channels are empty."}` }, parts, labels);
    this.place.replaceChildren(this.svg);
    this.words.replaceChildren(...(twin.length ? twin : ["All channels are empty."]).map((line) => html("li", {}, line)));
  }
  exported() { return this.svg.cloneNode(true); }
}
