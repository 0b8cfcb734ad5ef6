// Best so far with its interval on a log scale, in the geometry and classes of the report.
import { duration, h, svg } from "./dom.js";

const SIDE = 1000, DOTS = 1200;
const POWERS = [-2, -1, 0, 1, 2, 3];
const TICKS = [[1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]].map(digits => POWERS.flatMap(power => digits.map(digit => Number((digit * 10 ** power).toPrecision(2)))));
TICKS.push(Array.from({ length: 99 }, (_, index) => (index + 1) / 10));

const NAMES = { time: duration, usd: value => `$${value.toPrecision(2)}`, evaluations: value => Math.round(value).toLocaleString("en") };

// Timed steps by `evaluations`, `time` or `usd`: their places on that axis, their ratios [value, low, high],
// those that were the best so far as [place, ratio], and the bounds of all. One pass, and no object for a
// step: a page draws 10^5 of them several times a second.
function points(steps, axis) {
  const places = new Float64Array(steps.length), ratios = [], best = [];
  let count = 0, cost = 0, last = 0, high = 1, low = 1;
  for (const step of steps) {
    if (typeof step.usd === "number") cost += step.usd;
    if (!step.status || step.status === "infra" || step.op === "baseline" || step.fidelity !== "search") continue;
    count += 1;
    if (!step.ratio) continue;
    const place = axis === "time" ? step.t : axis === "usd" ? cost : count;
    if (!best.length || step.ratio[0] > best.at(-1)[1][0]) best.push([place, step.ratio]);
    places[ratios.length] = place;
    ratios.push(step.ratio);
    last = Math.max(last, place);
    high = Math.max(high, step.ratio[2]);
    low = Math.min(low, step.ratio[1]);
  }
  return { places, ratios, best, high, low, end: { time: last, usd: cost, evaluations: count }[axis] };
}

// From the first best to the end of the run, which may lie before that of another one.
function staircase({ best, end }, bound, x, y) {
  const corners = [];
  for (const [place, ratio] of best) {
    if (corners.length) corners.push([x(place), corners.at(-1)[1]]);
    corners.push([x(place), y(ratio[bound])]);
  }
  return [...corners, [x(end), corners.at(-1)[1]]];
}
const path = corners => `M${corners.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;

export function chart(runs, axis, label) {
  const series = runs.map(run => ({ ...run, ...points(run.steps, axis) })).filter(run => run.ratios.length);
  if (!series.length) return h("p", { class: "note" }, "No kernel has been timed yet.");
  const end = Math.max(...series.map(run => run.end)) || 1;
  const top = Math.max(...series.map(run => run.high)), high = 1.05 * top;
  const low = Math.max(Math.min(...series.map(run => run.low)), top / 40) / 1.05;
  const x = value => SIDE * value / end;
  const y = value => SIDE * (1 - Math.log(Math.max(value, low) / low) / Math.log(high / low));
  const area = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  const inside = TICKS.map(list => list.filter(tick => tick >= low && tick <= high));
  const ticks = inside.find(list => list.length >= 4) ?? inside.at(-1);
  for (const tick of ticks) area.append(svg("path", { class: "grid", d: `M0 ${y(tick)}H${SIDE}` }));
  area.append(svg("path", { class: "one", d: `M0 ${y(1)}H${SIDE}` }));
  series.forEach((run, index) => draw(area, run, `series${index % 4}`, x, y));
  const xs = [0.25, 0.5, 0.75, 0.97].map(share => share * end);
  return h("div", { class: "chart" },
    h("div", { class: "plot-area live-chart" }, area,
      ticks.map(tick => { const t = h("span", { class: "tick y" }, `${tick}×`); t.style.top = `${y(tick) / 10}%`; return t; })),
    h("div", { class: "x-axis" }, xs.map(value => {
      const t = h("span", { class: "tick x" }, NAMES[axis](value));
      t.style.left = `${x(value) / 10}%`;
      return t;
    })));
}

function draw(area, run, color, x, y) {
  const band = [...staircase(run, 2, x, y), ...staircase(run, 1, x, y).reverse()];
  area.append(svg("g", { class: "bands" }, svg("path", { class: `band ${color}`, d: `${path(band)}Z` })));
  let dots = "";
  for (let index = 0; index < run.ratios.length; index += Math.ceil(run.ratios.length / DOTS)) {
    dots += `M${x(run.places[index]).toFixed(1)} ${y(run.ratios[index][0]).toFixed(1)}h0`;
  }
  area.append(svg("g", { class: "dots" }, svg("path", { d: dots })));
  area.append(svg("path", { class: `best ${color}`, d: path(staircase(run, 0, x, y)) }));
}
