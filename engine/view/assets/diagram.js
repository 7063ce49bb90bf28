/* The space-time diagram. Only rows in sight are in the page. */
const TEXT_ROOM = 320, PAPER = 1030;
let drawn = 0;
class Diagram {
  constructor(run, go, changed) {
    this.run = run; this.changed = changed;
    this.head = html("div", { class: "head" });
    this.rows = html("div", { class: "rows" });
    this.chart = html("div", { class: "chart", tabindex: 0, role: "region", "aria-label": "Space-time diagram; the run in words is below" }, this.head, this.rows);
    this.groups = html("div", { class: "tools" });
    this.top = 0;
    this.chart.addEventListener("scroll", () => { this.top = this.chart.scrollTop; this.ask(); });
    this.rows.addEventListener("click", (event) => {
      const row = Math.floor((event.clientY - this.rows.getBoundingClientRect().top) / this.height);
      if (row >= 0 && row < run.actions.length) go(run.stepOfRow[row]);
    });
  }
  measure(width = Math.max(280, this.chart.clientWidth - 2)) {
    const names = this.heads(), columns = names.length;
    /* Texts stand beside the columns, or below the signs where that leaves too little room for them. */
    const beside = Math.max(46, Math.min(104, (Math.min(0.55 * width, columns * 104) - 20) / columns));
    this.narrow = width - 128 - beside * columns < TEXT_ROOM;
    this.height = this.narrow ? 40 : 23;
    this.gutter = this.narrow ? 6 : 128;
    this.lane = this.narrow ? Math.max(40, Math.min(104, (width - 12) / columns)) : beside;
    this.right = this.gutter + this.lane * columns;
    const longestName = Math.max(...names.map((name) => name.length));
    this.width = Math.max(width, (this.narrow ? 160 : this.right) + 7.2 * Math.min(this.run.longest + longestName + 2, 420));
    this.slant = names.some((name) => name.length * 6.6 > this.lane - 6);
    this.headHeight = this.slant ? Math.min(190, 18 + longestName * 4.4) : 26;
    this.width = Math.max(this.width, this.right + (this.slant ? longestName * 5 : 0));
  }
  heads() { return ["control", ...this.run.columns.map((one) => one.name)]; }
  x(column) { return this.gutter + this.lane * (column + 0.5); }
  y(row) { return this.height * row + (this.narrow ? 11 : this.height / 2); }
  draw() { this.lay(); this.render(); }
  /* The places of all rows; none is drawn. */
  lay() {
    this.measure();
    this.rows.style.height = `${this.height * this.run.actions.length}px`;
    this.rows.style.width = `${this.width}px`;
    this.head.style.width = `${this.width}px`;
    this.head.replaceChildren(this.names());
    this.view = this.chart.clientHeight || 800;
    this.shown = null;
    this.groups.replaceChildren(...this.toggles());
  }
  names() {
    const names = this.heads().map((name, column) => {
      const x = this.x(column), y = this.headHeight - 8;
      return svg("text", this.slant ? { x, y, transform: `rotate(-40 ${x} ${y})` } : { x, y, "text-anchor": "middle", "font-weight": 600 }, name);
    });
    return svg("svg", { width: this.width, height: this.headHeight, "aria-hidden": true }, names);
  }
  toggles() {
    const run = this.run, button = (text, title, vertex, by) => html("button", { class: "small", title, "aria-label": title, onclick: () => { run.open(vertex, by); this.changed(); } }, text);
    if (!run.grouped) return [];
    return run.vertices.flatMap(({ name }, vertex) => {
      const from = run.expanded.get(vertex), size = run.sizes[vertex];
      if (size < 2) return [];
      if (from === undefined) return [button(`expand ${name} ×${size}`, `Show subtasks of ${name}`, vertex)];
      return [button(`group ${name} ×${size}`, `Show ${name} as one column`, vertex),
        from > 0 ? button("◀", `Earlier subtasks of ${name}`, vertex, -MANY) : null, from + MANY < size ? button("▶", `Later subtasks of ${name}`, vertex, MANY) : null];
    }).filter(Boolean);
  }
  ask() { if (!this.asked) { this.asked = true; requestAnimationFrame(() => { this.asked = false; this.render(); }); } }
  /* Rows in sight, and some around them: they are drawn anew only when others come into sight. No layout is asked for, so
     that the browser makes it once for a step. */
  render() {
    const first = Math.max(0, 16 * Math.floor((this.top / this.height - 8) / 16)), last = Math.min(this.run.actions.length, first + Math.ceil(this.view / this.height) + 48);
    if (this.shown !== `${first} ${last}`) {
      const picture = this.picture(first, last);
      picture.style.top = `${first * this.height}px`;
      this.rows.replaceChildren(picture);
      this.shown = `${first} ${last}`;
      this.now = picture.querySelector(".current");
    }
    this.mark(this.now);
  }
  mark(rect) {
    const { r: [first, last] } = this.run.steps[this.run.step] || { r: [0, 0] };
    rect.setAttribute("y", first * this.height);
    rect.setAttribute("height", (last - first) * this.height);
    return rect;
  }
  /* The rows from first to last; the same for the screen and for a file. */
  picture(first, last, withNames = false) {
    /* A name of its own: a pattern of a hidden picture is not drawn. */
    this.hatch = `hatch${++drawn}`;
    const run = this.run, up = withNames ? this.headHeight : 0, parts = [], height = Math.max(1, (last - first) * this.height);
    for (let row = first; row < last; row++) if (run.stepOfRow[row] % 2) parts.push(svg("rect", { class: "band", x: 0, y: row * this.height, width: this.width, height: this.height }));
    parts.push(this.mark(svg("rect", { class: "current", x: 0, width: this.width })));
    for (let column = 0; column <= run.columns.length; column++) parts.push(svg("line", { class: "lane", x1: this.x(column), x2: this.x(column), y1: first * this.height, y2: last * this.height }));
    parts.push(...this.spans(first, last), ...this.arrows(first, last));
    for (let row = first; row < last; row++) parts.push(...this.row(row));
    parts.push(...this.cuts(first, last));
    const frame = svg("clipPath", { id: `${this.hatch}-rows` }, svg("rect", { x: 0, y: first * this.height, width: this.width, height }));
    const hatch = svg("pattern", { id: this.hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "hatchline", x1: 0, y1: 0, x2: 0, y2: 6 }));
    return svg("svg", { width: this.width, height: height + up, viewBox: `0 0 ${this.width} ${height + up}`, "aria-hidden": true },
      svg("defs", {}, hatch, frame), withNames ? this.names() : null, svg("g", { transform: `translate(0 ${up - first * this.height})`, "clip-path": `url(#${this.hatch}-rows)` }, parts));
  }
  row(number) {
    const run = this.run, [time, who, kind, text, dies] = run.actions[number], y = this.y(number), x = this.x(run.column(who));
    const parts = [], step = run.stepOfRow[number], begins = run.steps[step].r[0] === number;
    const sign = SIGNS[dies ? "crash" : kind], said = `${run.actor(who)}: ${text}`;
    if (dies && who < 0 && who !== -1) parts.push(svg("line", { class: "dead", x1: this.gutter, x2: this.right, y1: y, y2: y }));
    parts.push(sign ? svg("text", { class: `sign halo ${dies ? "crash" : kind}`, x, y: y + 4.5 }, sign) : svg("circle", { class: "dot", cx: x, cy: y, r: 3 }));
    const name = begins ? `${step + 1}  +${duration(time)}` : "";
    if (this.narrow) parts.push(svg("text", { x: 8, y: y + 21, class: "halo" }, begins ? [svg("tspan", { class: "soft" }, name), ` ${said}`] : said));
    else parts.push(svg("text", { class: "soft", x: 8, y: y + 4 }, name), svg("text", { x: this.right + 10, y: y + 4 }, said));
    return parts;
  }
  spans(first, last) {
    return [...this.run.within(this.run.spansIn, first, last)].map((number) => this.run.spans[number]).filter(([, from, to]) => to >= first && from < last).map(([channel, from, to]) => {
      const [sender, receiver] = this.run.channels[channel] || [-1, -1];
      const side = this.run.column(sender) <= this.run.column(receiver) ? -11 : 5;
      return svg("rect", { class: "blocked", fill: `url(#${this.hatch})`, x: this.x(this.run.column(receiver)) + side, y: this.y(from), width: 6, height: Math.max(4, this.y(to) - this.y(from)) },
        svg("title", {}, `${this.run.actor(receiver)} has blocked the channel from ${this.run.actor(sender)}`));
    });
  }
  // Where arrows lie over each other, plain ones are faint, and only orphans have labels: one for each channel.
  arrows(first, last) {
    const parts = [], seen = [...this.run.within(this.run.arrowsIn, first, last)], told = new Set();
    const crossing = seen.reduce((sum, number) => sum + Math.max(0, Math.min(last, this.run.arrows[number][1]) - Math.max(first, this.run.arrows[number][0])), 0);
    const crowded = crossing > 12 * (last - first);
    seen.sort((one, other) => (this.run.arrows[one][6] === 1) - (this.run.arrows[other][6] === 1) || one - other);
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
      const channel = `${sender} ${receiver}`, labelled = !crowded || (fate === 1 && !told.has(channel));
      if (fate === 1) told.add(channel);
      parts.push(svg("g", { class: crowded && fate !== 1 ? "faint" : null }, svg("title", {}, named), svg("line", { class: kind, x1, y1, x2: x2 - 9 * way, y2 }),
        svg("path", { class: `tip-${kind}`, d: `M${x2 - 3 * way},${y2} l${-9 * way},-4.5 v9 z` }),
        (barrier && fate === 0) || !labelled ? null : svg("text", { class: `halo${fate === 1 ? " crash" : ""}`, "text-anchor": "middle", "font-size": fate ? 11.5 : 10.5, x: x1 + at * (x2 - x1), y: y1 + at * (y2 - y1) - 4 },
          fate === 1 ? `◎ ${shortened(label, 22)}` : shortened(label, Math.max(4, Math.floor(this.lane / 6))))));
    }
    return parts;
  }
  cuts(first, last) {
    const parts = [];
    for (const cut of this.run.cuts) {
      if (cut.rows[1] < first || cut.rows[0] > last) continue;
      const points = this.points(cut);
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
      const y = step.r[0] * this.height, view = this.view - this.headHeight;
      if (y < this.top + 20 || y > this.top + view - 60) this.chart.scrollTop = this.top = Math.max(0, Math.min(y - view / 3, this.height * this.run.actions.length - view));
    }
    this.render();
  }
  /* For a file: the rows around this step. */
  exported() {
    const step = this.run.steps[Math.max(0, this.run.step)], middle = step ? step.r[0] : 0;
    const first = Math.max(0, Math.min(middle - EXPORTED_ROWS / 2, this.run.actions.length - EXPORTED_ROWS));
    return this.picture(first, Math.min(this.run.actions.length, first + EXPORTED_ROWS), true);
  }
  /* For paper: the rows around this step, in pieces that break between pages and not within a row. */
  printed() {
    const step = this.run.steps[Math.max(0, this.run.step)], first = Math.max(0, (step ? step.r[0] : 0) - PRINTED_ROWS / 3), last = Math.min(this.run.actions.length, first + PRINTED_ROWS), pieces = [];
    /* Over the whole sheet, also where two runs share the screen. */
    this.measure(PAPER);
    for (let row = first; row < last; row += 20) pieces.push(this.picture(row, Math.min(last, row + 20), row === first));
    this.measure();
    const left = this.run.actions.length - (last - first);
    return [...pieces, left > 0 ? html("p", { class: "soft" }, `Rows ${count(first + 1)} to ${count(last)}, around this step; ${count(left)} more are not printed.`) : ""];
  }
}
