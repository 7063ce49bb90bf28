/* A run: its state at a step, and the columns of its pictures. */
class Run {
  constructor(data) {
    Object.assign(this, data);
    this.step = -1;
    this.values = new Map(this.before);
    this.changed = new Set();
    this.inFull = new Set();
    this.stepOfRow = new Uint32Array(this.actions.length + 1);
    this.steps.forEach((step, number) => this.stepOfRow.fill(number, step.r[0], step.r[1]));
    this.important = new Uint8Array(this.steps.length);
    this.longest = 0;
    this.fates = [];
    this.actions.forEach((action, row) => {
      if (IMPORTANT.includes(action[2])) this.important[this.stepOfRow[row]] = 1;
      if (action[2] === "restore" || (action[4] && action[1] !== -1)) this.fates.push(row);
      if (action[3].length > this.longest) this.longest = action[3].length;
    });
    this.cellOf = new Map(this.cells.map((cell, number) => [cell.join("\u0000"), number]));
    this.firstLane = this.vertices.map((_, vertex) => this.vertexOf.indexOf(vertex));
    this.sizes = this.vertices.map(() => 0);
    for (const vertex of this.vertexOf) this.sizes[vertex]++;
    this.grouped = this.lanes.length > MANY;
    /* By expanded vertex: the first subtask that is shown. */
    this.expanded = new Map();
    this.arrowsIn = this.blocks(this.arrows, ([from, to]) => [from, to < 0 ? from + 1 : to]);
    this.spansIn = this.blocks(this.spans, ([, from, to]) => [from, to]);
    for (const cut of this.cuts) cut.rows = cut.at.reduce(([least, most], [, row]) => [Math.min(least, row), Math.max(most, row)], [Infinity, -1]);
    this.lay();
  }
  /* What the signs of the diagram say about rows, for the run in words. */
  notes(first, last) {
    const found = new Map(), note = (row, text) => { if (row >= first && row < last) found.set(row, [...(found.get(row) || []), text]); };
    for (const number of this.within(this.arrowsIn, first, last)) {
      const [from, to, , , label, , fate, checkpoint] = this.arrows[number];
      if (fate === 1) note(to, `◎ an orphan of checkpoint ${checkpoint}`);
      if (fate === 2) note(to < 0 ? from : to, `${label} was in flight at checkpoint ${checkpoint}`);
      if (to < 0) note(from, `× ${label} is never taken`);
    }
    for (const cut of this.cuts) note(cut.rows[1], `here the cut of checkpoint ${cut.id} ends${cut.orphans ? `, with ${plural(cut.orphans, "orphan")}` : ""}`);
    return found;
  }
  /* The lanes whose tasks are dead at this step. */
  dead() {
    const step = this.steps[this.step], dead = new Set();
    for (const row of this.fates) {
      if (!step || row >= step.r[1]) break;
      const [, who, kind] = this.actions[row];
      if (kind === "restore") dead.clear();
      else if (who >= 0) dead.add(who);
      else this.lanes.forEach((_, lane) => dead.add(lane));
    }
    return dead;
  }
  rowsOf(step) { return this.actions.slice(step.r[0], step.r[1]); }
  /* What reaches over rows, by blocks of 64 rows, so that only what is in sight is looked at. */
  blocks(all, reach) {
    const found = [];
    all.forEach((one, number) => {
      const [first, last] = reach(one);
      for (let block = first >> 6; block <= last >> 6; block++) (found[block] ||= []).push(number);
    });
    return found;
  }
  within(blocks, first, last) {
    const seen = new Set();
    for (let block = first >> 6; block <= last >> 6; block++) for (const number of blocks[block] || []) seen.add(number);
    return seen;
  }
  /* The columns: subtasks; or whole vertices, when there are very many. Of an expanded vertex, some of its subtasks, and
     those before and after them as one column each. */
  lay() {
    this.columns = []; this.columnOf = [];
    let last = null;
    this.lanes.forEach((name, lane) => {
      const vertex = this.vertexOf[lane], subtask = lane - this.firstLane[vertex], size = this.sizes[vertex], from = this.expanded.get(vertex);
      const whole = this.grouped && from === undefined && size > 1, some = from !== undefined && size > MANY;
      const first = whole ? 0 : !some ? subtask : subtask < from ? 0 : subtask >= from + MANY ? from + MANY : subtask;
      const end = whole ? size : !some ? subtask + 1 : subtask < from ? from : subtask >= from + MANY ? size : subtask + 1;
      if (last === null || last.vertex !== vertex || last.first !== first) {
        const title = this.vertices[vertex].name;
        last = { vertex, first, lanes: [], name: whole ? `${title} ×${size}` : end === first + 1 ? name : `${title}[${first}–${end - 1}]` };
        this.columns.push(last);
      }
      last.lanes.push(lane);
      this.columnOf.push(this.columns.length - 1);
    });
  }
  /* Open a vertex where it acts at this step; `by` turns to other subtasks of it, and no number closes it. */
  open(vertex, by) {
    if (by === undefined && this.expanded.has(vertex)) this.expanded.delete(vertex);
    else {
      const step = this.steps[Math.max(0, this.step)], acts = step && this.rowsOf(step).find((row) => row[1] >= 0 && this.vertexOf[row[1]] === vertex);
      const from = by === undefined ? (acts ? acts[1] - this.firstLane[vertex] : 0) : this.expanded.get(vertex) + by;
      this.expanded.set(vertex, Math.max(0, Math.min(from - (from % MANY), this.sizes[vertex] - 1)));
    }
    this.lay();
  }
  /* 0 is the column of the job manager and of the process. */
  column(lane) { return lane < 0 ? 0 : this.columnOf[lane] + 1; }
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
