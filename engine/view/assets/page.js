/* The page: pictures and tables of one run, or of two in step, at one step. */
function legend() {
  const drawing = (...shapes) => svg("svg", { width: 30, height: 10, "aria-hidden": true }, shapes);
  const line = (kind, text) => html("li", {}, drawing(svg("line", { class: kind, x1: 1, x2: 29, y1: 5, y2: 5 })), " ", text);
  const sign = (mark, text) => html("li", {}, html("b", {}, mark), " ", text);
  return html("ul", { class: "legend" }, line("records", "record, sent and taken"), line("barrier", "barrier of a checkpoint"), line("cut", "cut of a checkpoint: what lies above it is in the checkpoint"),
    line("orphan", "◎ orphan: taken before the cut, sent after it, so it comes again after a restore"), line("flight", "in flight across the cut: stored in the checkpoint, or lost"), line("lost", "× never taken"),
    html("li", {}, drawing(svg("circle", { class: "dot", cx: 15, cy: 5, r: 3 })), " an action"), html("li", {}, drawing(svg("rect", { class: "current", width: 30, height: 10 })), " this step"),
    sign("▨", "blocked channel, from block to unblock"), sign("▷", "checkpoint triggered"), sign("◆", "snapshot taken or acknowledged"), sign("✔", "checkpoint complete"), sign("⊘", "checkpoint given up"),
    sign("●", "commit: readers see something new"), sign("⚡", "fault"), sign("✕", "crash"), sign("↻", "restore"));
}
/* Without a clipboard, the text is marked, to be copied by hand. */
function copied(place, button) {
  const mark = () => getSelection().selectAllChildren(place), done = () => { button.textContent = "copied"; };
  if (navigator.clipboard) navigator.clipboard.writeText(place.textContent).then(done, mark); else mark();
}
function main(data) {
  const page = document.getElementById("page"), runs = data.runs.map((one) => new Run(one)), two = runs.length > 1;
  const rows = data.pairs || runs[0].steps.map((_, step) => [step]);
  let at = -1, playing = null, named = null;
  /* The row of the page for a step of one run. */
  const rowOf = (run, step) => { const number = runs.indexOf(run); return data.pairs ? rows.findIndex((row) => row[number] === step) : step; };
  const graphs = runs.map((run) => new Graph(run));
  const diagrams = runs.map((run, number) => new Diagram(run, (step) => go(rowOf(run, step)), () => { diagrams[number].draw(); graphs[number].lay(); graphs[number].draw(); }));
  const nows = runs.map(() => html("div", { class: "now", "aria-live": "polite" })), states = runs.map(() => html("div")), words = runs.map(() => html("pre", { tabindex: 0 }));
  const slider = html("input", { type: "range", min: 0, max: Math.max(0, rows.length - 1), value: 0, "aria-label": "Step", oninput: () => go(+slider.value) });
  const told = html("output", { "aria-live": "polite" });

  function nowOf(run) {
    const step = run.steps[run.step];
    if (!step) return [html("p", { class: "soft" }, "nothing has happened here yet")];
    const parts = [html("ul", {}, run.rowsOf(step).map(([time, who, kind, text, dies]) => html("li", {}, html("b", { class: dies || kind === "fault" ? "bad" : null }, run.actor(who)), ` ${text}`)))];
    if (!run.rowsOf(step).length) parts[0] = html("p", { class: "soft" }, "only state changes");
    if (run.crash && !step.x) parts.push(html("p", { class: "soft" }, "No command makes it crash in this step: nothing here is a point at which an actor can be made to die."));
    if (run.crash && step.x) {
      const command = html("code", {}, run.crash.replace("@FAULT@", step.x)), copy = html("button", { class: "small", onclick: () => copied(command, copy) }, "copy");
      parts.push(html("p", {}, html("span", { class: "soft" }, "crash it here: "), command, " ", copy));
    }
    return parts;
  }
  function wordsOf(run) {
    const from = Math.max(0, run.step - LISTED), to = Math.min(run.steps.length, run.step + LISTED), lines = [];
    if (from >= to) return "";
    const first = run.steps[from].r[0], last = run.steps[to - 1].r[1], notes = run.notes(first, last);
    for (let row = first; row < last; row++) {
      const [time, who, , text] = run.actions[row], step = run.stepOfRow[row];
      lines.push(`${step === run.step ? "→" : " "} ${step + 1}  +${duration(time)}  ${[`${run.actor(who)}: ${text}`, ...(notes.get(row) || [])].join(" · ")}`);
    }
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
      if (run.told) run.told();
      states[number].replaceChildren(...cellTables(run, two ? runs[1 - number] : null, () => go(at)));
      graphs[number].draw();
      diagrams[number].follow();
    });
    if (details.open) tell();
    clearTimeout(named);
    /* The frame of a notebook has no address of its own. */
    if (location.protocol !== "about:") named = setTimeout(() => history.replaceState(null, "", `#step=${at + 1}`), 300);
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
    if ((tag === "BUTTON" || tag === "SUMMARY") && event.key === " ") return;
    event.preventDefault(); keys[event.key]();
  });
  const tell = () => runs.forEach((run, number) => { words[number].textContent = wordsOf(run); });
  const details = html("details", { ontoggle: () => details.open && tell() }, html("summary", {}, "The run in words, around this step"),
    html("div", { class: two ? "runs two" : "runs" }, words));
  const each = (part) => html("div", { class: two ? "runs two" : "runs" }, runs.map((run, number) => html("section", { "aria-label": run.name }, two ? html("h3", {}, run.name) : null, part(run, number))));
  const section = (title, ...parts) => (parts.flat().length ? html("section", {}, html("h2", {}, title), parts) : null);

  page.append(...[html("h1", {}, data.title), ...data.lines.map((line) => html("p", { class: line.kind }, line.text)),
    data.tables.length ? html("div", { class: "facts" }, data.tables.map((one) => table(one.caption, one.heads, one.rows, one.heads.map((_, column) => column).slice(1)))) : null,
    runs.some((run) => run.chapters.length) ? section("Why, step by step", each((run) => chapterPart(run))) : null,
    html("div", { class: "player", role: "toolbar", "aria-label": "Steps" }, button("|◀", "First step (Home)", () => go(0)), button("◀", "Step back (left arrow)", () => go(at - 1)), slider, button("▶", "Step forward (right arrow)", () => go(at + 1)), button("▶|", "Last step (End)", () => go(rows.length - 1)),
      button("◀◀", "Previous event that matters (p)", () => jump(-1)), button("▶▶", "Next event that matters (n)", () => jump(1)), playButton, themeButton, told),
    each((run, number) => nows[number]),
    section("Space and time", legend(), each((run, number) => [html("div", { class: "tools" }, files("space-time diagram", () => diagrams[number].exported()), diagrams[number].groups), diagrams[number].chart]), details),
    section("Job graph", html("p", { class: "soft" }, "A thick line: a channel with records or barriers in it. A dashed one, ▨: blocked. ▲: back pressure. ✕: dead. What is in each channel is in words below."),
      each((run, number) => [html("div", { class: "tools" }, files("job graph", () => graphs[number].exported())), graphs[number].place, html("details", {}, html("summary", {}, "The job graph in words, at this step"), graphs[number].words)])),
    section("State at this step", html("p", { class: "soft" }, "▸ has changed in this step."), each((run, number) => states[number])),
    runs.some((run) => run.violations.length) ? section("Invariants", each((run) => (!run.violations.length ? html("p", { class: "good" }, "none is violated") : html("ul", {}, run.violations.map((one) => html("li", { class: "bad" }, `${one.name}: ${one.text} `, one.step >= 0 ? html("button", { class: "small", onclick: () => go(rowOf(run, one.step)) }, `step ${one.step + 1}`) : null)))))) : null,
    runs.some((run) => run.ledger) ? section("Ledger: from an output to its source", each((run) => ledgerPart(run))) : null,
    runs.some((run) => run.checkpoints) ? section("Checkpoints", each((run) => checkpointTables(run.checkpoints))) : null,
    section("Over virtual time", each((run) => seriesPart(run))),
    data.endings ? section("All endings", endingsPart(data.endings)) : null,
    section("Keys", html("p", {}, "← → step · Page Up/Down ten steps · Home/End · n, p: next and previous event that matters · space: play · t: light or dark. Click a row to go there."))].filter(Boolean));

  function chapterPart(run) {
    const buttons = run.chapters.map(([text, row]) => html("button", { onclick: () => go(rowOf(run, run.stepOfRow[row])) }, text));
    run.told = () => run.chapters.forEach(([, row], at) => buttons[at].setAttribute("aria-current", run.stepOfRow[row] === run.step ? "step" : "false"));
    return run.chapters.length ? html("ol", { class: "chapters" }, buttons.map((one) => html("li", {}, one))) : html("p", { class: "soft" }, "this run was not restored");
  }
  function ledgerPart(run) {
    if (!run.ledger) return html("p", { class: "soft" }, "this run keeps no ledger; add --ledger");
    const trail = html("p", { class: "now", "aria-live": "polite" }, "Choose a row to see the record that caused it, its checkpoint, and the steps of its way.");
    const rowsOfLedger = run.ledger.outputs.slice(0, LISTED).map((one) => {
      const show = () => trail.replaceChildren(`${one.row} in ${one.sink} comes from ${one.cause}. ${one.how}. `, ...one.way.map(([text, row]) => [html("button", { class: "small", onclick: () => go(rowOf(run, run.stepOfRow[row])) }, `${text}: step ${run.stepOfRow[row] + 1}`), " "]).flat());
      return html("tr", {}, [html("button", { class: "small", onclick: show, "aria-label": `Where ${one.row} in ${one.sink} comes from` }, one.row), one.sink, one.cause, one.checkpoint ?? "at once", one.attempt].map((text) => html("td", {}, text instanceof Node ? text : String(text))));
    });
    const more = run.ledger.outputs.length - rowsOfLedger.length;
    return [run.ledger.paragraphs.map((text) => html("p", { class: "why" }, text)), run.ledger.paragraphs.length ? null : html("p", { class: "good" }, run.ledger.problem || "Each record has its effects as often as it should."),
      html("div", { class: "wide" }, html("table", {}, html("thead", {}, html("tr", {}, ["Row", "Sink", "Source record", "Checkpoint", "Attempt"].map((text) => html("th", { scope: "col" }, text)))), html("tbody", {}, rowsOfLedger))),
      more > 0 ? html("p", { class: "soft" }, `and ${count(more)} more`) : null, trail].flat().filter(Boolean);
  }
  if (!document.documentElement.dataset.theme) theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  /* On paper nothing scrolls: rows around this step, and all that can be opened. */
  const paper = diagrams.map(() => html("div", { class: "paper" }));
  diagrams.forEach((one, number) => one.chart.after(paper[number]));
  addEventListener("beforeprint", () => {
    diagrams.forEach((one, number) => paper[number].replaceChildren(...one.printed()));
    tell();
    document.querySelectorAll("details:not([open])").forEach((one) => { if (one.fill) one.fill(); one.open = one.dataset.printed = true; });
  });
  addEventListener("afterprint", () => {
    paper.forEach((one) => one.replaceChildren());
    document.querySelectorAll("details[data-printed]").forEach((one) => { one.open = false; delete one.dataset.printed; });
  });
  /* Drawn once, where the page opens. */
  diagrams.forEach((one) => one.lay());
  addEventListener("resize", () => diagrams.forEach((one) => one.draw()));
  const asked = /step=(\d+)/.exec(location.hash);
  go(asked ? +asked[1] - 1 : data.begin);
  document.documentElement.dataset.ready = "yes";
  window.weir = { go, runs, rows, get at() { return at; }, diagrams };
}
async function load() {
  const place = document.getElementById("data"), text = place.textContent;
  if (place.dataset.form !== "gzip") return JSON.parse(text);
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
load().then(main);
