import { chart } from "./chart.js";
import { sideBySide } from "./diff.js";
import { duration, h, ratio, span, unit, words } from "./dom.js";
import { transcript } from "./transcript.js";

const link = name => `#/run/${encodeURIComponent(name)}`;
const stepLink = (name, n) => h("a", { href: `${link(name)}/step/${n}` }, `#${n}`);
const section = (title, ...content) => h("section", {}, h("h2", {}, title), content);
const wide = (label, table) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
const table = (head, body, name) => h("table", { class: name }, h("thead", {}, h("tr", {}, head.map(each => h("th", { scope: "col" }, each || h("span", { class: "hidden" }, "Bar"))))), h("tbody", {}, body));
const row = cells => h("tr", {}, cells.map((each, index) => h(index ? "td" : "th", index ? {} : { scope: "row" }, each)));
const whatState = run => run.state === "running" && run.steering?.paused ? "paused" : run.reason ? `${run.state}: ${run.reason}` : run.state;

// What is claimed: the verified speedup, and before there is one the best that the search has measured.
export const best = run => run.claimed ?? run.best;

export function headline(run) {
  const found = best(run), trust = run.claimed ? "verified: measured again in fresh processes" : "not verified: the search's own measurement";
  return [found ? h("p", { class: "figure gain" }, h("strong", {}, ratio(found)), h("span", {}, `best speedup over ${run.baseline}, ${span(found)}`))
    : h("p", { class: "figure none" }, h("strong", {}, "No kernel timed yet")),
  h("p", { class: "note" }, [`Task ${run.task}`, whatState(run), found && trust].filter(Boolean).join("; "))];
}

export function runList(runs, chosen, choose) {
  const lines = [...runs].reverse().map(run => row([
    h("a", { href: link(run.name) }, run.name), run.task, run.state,
    [h("b", {}, ratio(best(run)) || "none"), " ", h("span", { class: "quiet" }, span(best(run)))],
    run.evaluations.toLocaleString("en"), duration(run.wall_time_s), run.usd === null ? "unknown" : `$${run.usd.toFixed(2)}`,
    h("input", { type: "checkbox", "aria-label": `compare ${run.name}`, checked: chosen.has(run.name) ? "" : null, onchange: () => choose(run.name) }),
  ]));
  const target = [...chosen].map(encodeURIComponent).join("/");
  return [h("h1", {}, "Runs"),
    runs.length ? wide("Runs", table(["Run", "Task", "State", "Best", "Evaluations", "Time", "Cost", "Compare"], lines, "runs"))
      : h("p", { class: "note" }, "The database holds no run yet."),
    chosen.size > 1 && h("p", { class: "controls" }, h("a", { href: `#/compare/${target}` }, `Compare ${chosen.size} runs`))];
}

export function comparison(runs, axis, setAxis) {
  return [h("h1", {}, "Runs side by side"), axes(axis, setAxis, runs.every(run => run.line?.usd > 0)), chart(runs, axis, "Best speedup so far of several runs"),
    table(["Run", "Best", "Interval", "Evaluations"], runs.map((run, index) => run.line ? row([
      h("a", { href: link(run.name) }, `${run.name} (${["blue", "purple", "green", "orange"][index % 4]})`),
      ratio(best(run.line)) || "none", span(best(run.line)), run.line.evaluations]) : row([run.name, "no such run", "", ""])))];
}

export function axes(axis, setAxis, hasCost) {
  return h("div", { class: "controls", role: "group", "aria-label": "Horizontal axis" },
    ["evaluations", "time", ...(hasCost ? ["usd"] : [])].map(each => h("button", { type: "button", "aria-pressed": String(each === axis), onclick: () => setAxis(each) }, `by ${unit(each)}`)));
}

export function progressPart(run, shown, axis, total) {
  return [chart([{ name: run.name, steps: shown }], axis, "Best speedup so far with its interval"),
    h("p", { class: "note" }, `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} steps. Line: the best so far with its interval; dots: other programs; dashed: the baseline.`)];
}

export function funnel(shown) {
  const counts = new Map();
  let searched = 0, faster = 0;
  for (const step of shown) {
    if (step.fidelity === "verify" || step.op === "baseline") continue;
    const end = step.status ?? (step.failure ? "no program" : "under way");
    counts.set(end, (counts.get(end) ?? 0) + 1);
    searched += 1;
    if (step.ratio && step.ratio[1] > 1) faster += 1;
  }
  const lines = [["proposals", searched], ...[...counts].sort((a, b) => b[1] - a[1]), ["faster than the baseline", faster]];
  return table(["Verdict", "Proposals", ""], lines.map(([name, count]) => row([words(name), count.toLocaleString("en"),
    h("div", { class: "share" }, h("span", { "width%": 100 * count / (searched || 1) }))])));
}

const UNITS = { wall_time: "wall_time_s", device_time: "device_time_s" };
export function budget(run) {
  const amount = (name, value) => name in UNITS ? duration(value) : name === "usd" ? `$${value.toFixed(2)}` : Math.round(value).toLocaleString("en");
  const spent = ["evaluations", "wall_time", ...(run.tokens ? ["tokens", "usd"] : [])];
  const lines = [...new Set([...Object.keys(run.limits), ...spent])].map(name => {
    const limit = run.limits[name], used = run[UNITS[name] ?? name];
    const known = used !== null && used !== undefined, bound = limit === undefined ? "none" : amount(name, limit);
    if (!known || limit === undefined) return row([unit(name), known ? amount(name, used) : "unknown", bound, "", ""]);
    const left = used > 0 ? run.wall_time_s * (limit / used - 1) : null;
    const forecast = run.state !== "running" || left === null ? "" : left > 0 ? `in ${duration(left)}` : "now";
    return row([unit(name), amount(name, used), bound, h("div", { class: "share" }, h("span", { "width%": Math.min(100, 100 * used / limit) })), forecast]);
  });
  return table(["Budget", "Used", "Limit", "", run.state === "running" ? "Reached at this pace" : ""], lines, "spent");
}

export function archive(run) {
  const map = run.archive;
  if (!map && !run.ranked.length) return h("p", { class: "note" }, "The archive is empty.");
  if (!map) return table(["Place", "Speedup", "Step"], run.ranked.map(each => row([each.slot, [each.speedup, " ", h("span", { class: "quiet" }, each.span)], stepLink(run.name, each.sequence)])));
  const lines = map.cells.map((cells, index) => h("tr", {}, h("th", { scope: "row" }, map.row_values[index]),
    cells.map(cell => cell ? h("td", { "--heat": cell.heat }, cell.speedup, " ", stepLink(run.name, cell.sequence)) : h("td", { class: "empty" }, "·"))));
  return [h("p", { class: "note" }, `The best speedup in each place, with its step. Rows: ${words(map.row_axis)}; columns: ${words(map.column_axis)}.`),
    wide("Archive", h("table", { class: "heat" }, h("thead", {}, h("tr", {}, h("td", {}), map.column_values.map(each => h("th", { scope: "col" }, each)))), h("tbody", {}, lines)))];
}

export function cases(items) {
  if (!items.some(each => each.ratio)) return null;
  const logs = items.filter(each => each.ratio).map(each => Math.log(each.ratio[0])), low = Math.min(...logs), high = Math.max(...logs);
  return h("table", { class: "heat" }, h("thead", {}, h("tr", {}, ["Case", "Speedup", "Interval"].map(each => h("th", { scope: "col" }, each)))),
    h("tbody", {}, items.map(each => h("tr", {}, h("th", { scope: "row" }, each.name),
      h("td", { "--heat": each.ratio ? (Math.log(each.ratio[0]) - low) / (high - low || 1) : 0 }, each.ratio ? ratio(each.ratio) : each.passed ? "not timed" : "failed"),
      h("td", { class: each.ratio && each.ratio[2] < 1 && "bad" }, span(each.ratio))))));
}

export const way = run => run.way.length ? h("ol", { class: "path" }, run.way.map(n => h("li", {}, stepLink(run.name, n), " ",
  run.step?.(n) ? `${run.step(n).op} ${ratio(run.step(n).ratio)}` : ""))) : h("p", { class: "note" }, "No kernel has won yet.");

const short = text => text.length > 90 ? `${text.slice(0, 90)}…` : text;
const verdict = step => short(words(step.status ?? step.failure ?? "under way")) + (step.fidelity === "screen" ? ", screened" : "");
export const newest = (run, shown) => !shown.length ? h("p", { class: "note" }, "No step has been made yet.") : wide("Newest steps", table(["Step", "Operator", "Verdict", "Speedup", "Interval"],
  shown.slice(-25).reverse().map(step => row([stepLink(run.name, step.n), step.op, verdict(step), ratio(step.ratio), span(step.ratio)])), "steps"));

const ROLES = { system: "System prompt", user: "Prompt", assistant: "Earlier reply" };
const askedOf = round => [`Model: ${round.model}`, round.tokens && `${round.tokens.toLocaleString("en")} tokens`, typeof round.usd === "number" && `$${round.usd.toFixed(4)}`].filter(Boolean).join(", ");
export function stepPage(step) {
  const about = [step.op, words(step.status ?? (step.failure ? "no program" : "under way")), !["search", step.op].includes(step.fidelity) && words(step.fidelity), step.ratio && `${ratio(step.ratio)} (${span(step.ratio)})`].filter(Boolean).join(", ");
  const text = (title, content) => content ? h("details", { open: "" }, h("summary", {}, title), h("pre", { class: "text", tabindex: 0 }, content)) : null;
  return [h("h1", {}, `Step ${step.n} of `, h("a", { href: link(step.run) }, step.run)),
    h("p", { class: "meaning" }, about),
    h("p", { class: "controls" }, step.n > 0 && h("a", { href: `${link(step.run)}/step/${step.n - 1}`, rel: "prev" }, "Previous (k)"), step.n + 1 < step.asked && h("a", { href: `${link(step.run)}/step/${step.n + 1}`, rel: "next" }, "Next (j)")),
    step.note && h("p", { class: "remark" }, step.note), step.failure && h("p", { class: "bad" }, step.failure),
    Object.keys(step.assignment).length > 0 && h("ul", { class: "changes" }, Object.entries(step.assignment).map(([name, value]) => h("li", {}, `${name} = ${value}`))),
    section("Verdict", cases(step.cases) ?? h("p", { class: "note" }, words(step.status ?? (step.failure ? "No program, so none was judged." : "Not judged yet."))), step.labels.length > 0 && h("p", { class: "note" }, step.labels.join(", ")), text("Feedback", step.feedback)),
    step.parent_source !== null && step.source !== null && section("Change", h("p", { class: "note" }, "From the parent", step.parent_step !== null && [", ", stepLink(step.run, step.parent_step), ","], " to this program."), sideBySide(step.parent_source, step.source)),
    step.rounds.map((round, index) => section(`Prompt and reply${step.rounds.length > 1 ? ` ${index + 1}` : ""}`, h("p", { class: "note" }, askedOf(round)),
      round.prompt.map(each => text(ROLES[each.role] ?? each.role, each.text)), round.transcript && transcript(step, round, index, stepLink),
      round.error && h("p", { class: "bad" }, round.error), text("Reply", round.reply ?? "Not answered yet."))),
    step.source !== null && section("Source", text("Whole source", step.source))];
}
export { link, section, stepLink };
