/* Series over virtual time, and the endings of a check. */
function curve(title, unit, values, from, to) {
  const width = 330, height = 112, most = Math.max(1, ...values), x = (at) => 58 + (at / Math.max(1, values.length - 1)) * (width - 72), label = unit === "ns" ? duration : count, y = (value) => height - 20 - (value / most) * (height - 52);
  const path = values.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: from ${values[0] ?? 0} to ${values[values.length - 1] ?? 0}, at most ${most} ${unit}` },
    svg("text", { x: 4, y: 12, "font-weight": 600 }, title), svg("text", { class: "soft", x: 54, y: y(most) + 4, "text-anchor": "end" }, label(most)), svg("text", { class: "soft", x: 54, y: y(0) + 4, "text-anchor": "end" }, "0"),
    svg("line", { class: "axis", x1: 58, x2: width - 14, y1: y(0), y2: y(0) }), values.length > 1 ? svg("path", { class: "curve", d: path }) : svg("circle", { class: "bar", cx: x(0), cy: y(values[0] ?? 0), r: 3 }),
    svg("text", { class: "soft", x: 58, y: height - 6 }, from), svg("text", { class: "soft", x: width - 14, y: height - 6, "text-anchor": "end" }, to));
}
function seriesPart(run) {
  const series = run.series, durations = run.checkpoints ? [...run.checkpoints.history].reverse().map((row) => Math.max(0, row.end_to_end_duration)) : [];
  const ends = [`+${duration(series.from)}`, `+${duration(series.from + series.width * series.read.length)}`], ids = run.checkpoints ? run.checkpoints.history.map((row) => `checkpoint ${row.id}`) : [];
  const shown = [["Throughput: records read", "records", series.read, ...ends], ["Lag: records under way", "records", series.queued, ...ends], ["Back pressure: blocked channels", "channels", series.blocked, ...ends],
    ["End to end duration of checkpoints", "ns", durations, ids[ids.length - 1], ids[0]]].filter(([, , values]) => values.length);
  const rows = () => series.read.map((read, at) => [`+${duration(series.from + at * series.width)}`, read, series.queued[at], series.blocked[at]]);
  return [html("div", { class: "curves" }, shown.map((one) => pictured(one[0], curve(...one)))),
    folded("The series as a table", () => [table("", ["from", "records read", "records under way", "blocked channels"], rows(), [1, 2, 3])])];
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
  const more = endings.list.length - rows.length, left = more > 0 ? [html("p", { class: "soft" }, `The picture shows ${rows.length} of them; the table has all.`)] : [];
  return [html("p", { class: "verdict" }, endings.text), pictured("all endings", picture), ...left, table("", ["Ending", "Faults", "Events", "What readers see"], rows.map((one) => [(one.wrong ? "wrong: " : "right: ") + one.state, one.faults, one.events, one.rows]), [1, 2])];
}
