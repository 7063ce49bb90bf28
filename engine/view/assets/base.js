/* Names and makers that the other scripts use. Every text comes from the job and is set as text, never as markup. */
const SVG = "http://www.w3.org/2000/svg";
const SIGNS = { crash: "✕", fault: "⚡", complete: "✔", abort: "⊘", commit: "●", snapshot: "◆", trigger: "▷", restore: "↻" };
const IMPORTANT = ["crash", "fault", "restore", "commit", "complete", "abort", "trigger", "snapshot"];
const CONTROL = { "-1": "job manager", "-2": "process", "-3": "fault", "-4": "user" };
/* Above MANY lanes, vertices are columns; an expanded one shows MANY subtasks at a time. */
const MANY = 24, EXPORTED_ROWS = 400, PRINTED_ROWS = 120, LISTED = 150, LISTED_CELLS = 30, MOST_CELLS = 1000;
const KINDS = [["state", "State by key", "Task", "State [key]", "Value"], ["position", "Source positions", "Task", "Split", "Position"],
  ["transaction", "Pending transactions", "Task", "Transaction", "How far, how much"], ["reader", "What a reader sees", "Output", "Row", "Seen"],
  ["pressure", "Back pressure", "Task", "", "Outputs"]];
/* 2 before 10. */
const inOrder = new Intl.Collator("en", { numeric: true }).compare;

function html(tag, attributes, ...children) { return made(document.createElement(tag), attributes, children); }
function svg(tag, attributes, ...children) { return made(document.createElementNS(SVG, tag), attributes, children); }
function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
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
const thousands = new Intl.NumberFormat("en-US"), count = (number) => thousands.format(number);
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
