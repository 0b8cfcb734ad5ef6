// Parts of a run's page that the server or the steps give whole: lanes, cases, lineage, change.
import { sideBySide } from "./diff.js";
import { duration, h, svg, words } from "./dom.js";

const WIDE = 1000, LANE = 26;

// Who judged what when: a lane for each judge, or, where none is named, for as many as worked at once.
export function lanes(shown) {
  let end = 0;
  for (const step of shown) if (step.s && step.t > end) end = step.t;
  if (!end) return h("p", { class: "note" }, "No times of judging are stored yet.");
  const rows = new Map(), free = [];
  const laneOf = (step, from) => {
    if (step.judge) return step.judge;
    let place = free.findIndex(end => end <= from + 0.05);
    if (place < 0) place = free.length;
    free[place] = step.t;
    return `judge ${place + 1}`;
  };
  for (const step of shown) {
    if (!step.s || !step.t) continue;
    const from = Math.max(0, step.t - step.s), name = laneOf(step, from);
    if (!rows.has(name)) rows.set(name, { good: [], bad: [], busy: 0, count: 0 });
    const row = rows.get(name);
    lengthen(row[step.status === "correct" ? "good" : "bad"], from, step.t, end / WIDE / 2);
    row.busy += step.t - from;
    row.count += 1;
  }
  const bars = (kind, list) => svg("path", { class: kind, d: list.map(([a, b]) => `M${(WIDE * a / end).toFixed(1)} 3H${Math.max(WIDE * b / end, WIDE * a / end + 0.6).toFixed(1)}V${LANE - 3}H${(WIDE * a / end).toFixed(1)}Z`).join("") });
  const body = [...rows].sort().map(([name, row]) => h("tr", {}, h("th", { scope: "row" }, name),
    h("td", { class: "lane" }, svg("svg", { viewBox: `0 0 ${WIDE} ${LANE}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${row.count} evaluations` }, bars("good", row.good), bars("bad", row.bad))),
    h("td", {}, row.count.toLocaleString("en")), h("td", {}, `${Math.min(100, 100 * row.busy / end).toFixed(0)}\u00a0%`)));
  return [h("table", { class: "lanes" }, h("thead", {}, h("tr", {}, ["Judge", `0 to ${duration(end)}`, "Evaluations", "Busy"].map(each => h("th", { scope: "col" }, each)))), h("tbody", {}, body)),
    h("p", { class: "note" }, "A bar is an evaluation with its waits: blue if correct, orange if not.")];
}

// Adds a bar, or lengthens the last one if the eye would see no gap: a lane has no more bars than it is wide.
function lengthen(bars, from, to, gap) {
  const last = bars.at(-1);
  if (last && from >= last[0] && from <= last[1] + gap) last[1] = Math.max(last[1], to);
  else bars.push([from, to]);
}

// The best programs over the cases of the task.
export function shapes(run, stepLink) {
  const map = run.shapes;
  if (!map) return null;
  return [h("p", { class: "note" }, "The best programs by case; \u25bc: slower than the baseline."), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Speedups of the best programs by case" },
    h("table", { class: "heat" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Step"), map.cases.map(each => h("th", { scope: "col" }, each)))),
      h("tbody", {}, map.rows.map(row => h("tr", {}, h("th", { scope: "row" }, stepLink(run.name, row.sequence)),
        row.cells.map(cell => cell ? h("td", { "--heat": cell.heat, title: cell.span }, h("b", { class: cell.loses && "loss" }, cell.speedup)) : h("td", { class: "empty" }, "·")))))))];
}

const SHAPES = {
  winner: ["path", { d: "M0-10 2.9-3.6 9.8-3 4.6 1.5 6.2 8.3 0 4.7-6.2 8.3-4.6 1.5-9.8-3-2.9-3.6Z" }],
  elite: ["path", { d: "M-5-5H5V5H-5Z" }], kept: ["circle", { r: 5 }], unjudged: ["circle", { r: 2 }],
  failed: ["path", { d: "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5" }],
};

// Programs by generation, in the geometry of the report; each is a link to its step and its change.
export function lineage(picture, link) {
  if (!picture) return h("p", { class: "note" }, "No program has been made yet.");
  const area = svg("svg", { width: picture.width, height: picture.height, viewBox: `0 0 ${picture.width} ${picture.height}`, class: picture.edges.length > 250 && "dense", role: "group", "aria-label": "Programs by generation, the oldest on top" });
  for (const edge of picture.edges) area.append(svg("path", { class: `edge${edge.main ? " main" : ""}${edge.on_path ? " way" : ""}`, d: edge.path }));
  for (const node of picture.nodes) {
    const [name, shape] = SHAPES[node.shape];
    area.append(svg("a", { href: link(node.sequence), class: `node ${node.shape}${node.on_path ? " way" : ""}`, transform: `translate(${node.x} ${node.y})`, "--heat": node.heat ?? 0, "aria-label": node.on_path ? `${node.label}, ${node.title}` : node.title },
      svg("title", {}, node.title), svg(name, shape), node.on_path && svg("text", { x: -16, y: 4 }, node.label)));
  }
  return [h("div", { class: "scroll lineage", tabindex: 0, role: "region", "aria-label": "Lineage" }, area),
    h("p", { class: "note" }, `Star: the best program; square: in the archive; cross: not correct. ${picture.left_out ? `${picture.left_out.toLocaleString("en")} programs are left out.` : ""}`)];
}

// From the first to the best program, and what the operators said of the steps between.
export function change(found, name, stepLink) {
  if (found.before === null) return h("p", { class: "note" }, "The best program is the first one, or none has won yet.");
  const said = found.words.filter(each => each.note);
  return [said.length > 0 && h("ol", { class: "path" }, said.map(each => h("li", {}, stepLink(name, each.sequence), ` ${words(each.operator)} ${each.speedup}: ${each.note}`))),
    sideBySide(found.before, found.after, "The best program has the source of the first; its open constants have other values.", ["First program", "Best program"])];
}
