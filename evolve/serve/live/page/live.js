import { follow, get, NoToken, plain, steer, Steps, takeGivenToken, takeToken } from "./data.js";
import { h, refill } from "./dom.js";
import * as whole from "./parts.js";
import { redrawing } from "./seen.js";
import { steerEvents, steerForm, steerStep } from "./steer.js";
import * as views from "./views.js";

const main = document.getElementById("main"), status = document.getElementById("state");
const runs = new Map(), steps = new Map(), chosen = new Set();
let show = () => {}, hear = () => {}, axis = "evaluations";
const put = (...content) => refill(main, content);
const say = (text, isBad) => { status.textContent = text; status.className = isBad ? "bad" : ""; };

function stepsOf(name) {
  if (!steps.has(name)) steps.set(name, new Steps(name));
  return steps.get(name);
}

// Draws at most once a frame, and only while the page is seen.
let waits = false;
function soon() {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; show(); });
}

function take(event) {
  if (event.trouble) { say(event.trouble, true); return; }
  for (const run of event.runs ?? []) runs.set(run.name, { ...runs.get(run.name), ...run });
  for (const [name, found] of Object.entries(event.steps ?? {})) steps.get(name)?.put(found, true);
  say("live");
  if (!event.hello) hear(event);
}

function showList() {
  const draw = () => put(views.runList([...runs.values()], chosen, name => {
    if (!chosen.delete(name)) chosen.add(name);
    draw();
  }));
  show = draw; hear = soon;
  draw();
}

async function showComparison(names) {
  const draw = () => put(views.comparison(names.map(name => ({ name, line: runs.get(name), steps: stepsOf(name).known })), axis, each => { axis = each; draw(); }));
  show = draw;
  const load = name => runs.has(name) && stepsOf(name).load(runs.get(name).asked, soon);
  hear = () => { names.forEach(load); soon(); };
  draw();
  await Promise.all(names.map(load));
}

async function showRun(name, isNewest) {
  const own = stepsOf(name), state = { upTo: null };
  const parts = { head: h("div"), chart: h("div"), funnel: h("div"), budget: h("div"), archive: h("div"), cases: h("div"), way: h("div"), newest: h("div"), axes: h("div"), steer: h("div"), events: h("div"), lanes: h("div"), shapes: h("div"), change: h("div"), picture: h("div") };
  const fill = (part, ...content) => refill(parts[part], content);
  let run = await get("run", { name });
  if (!isNewest()) return;
  const replay = h("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": "Replay up to step", oninput: () => {
    state.upTo = Number(replay.value) >= Number(replay.max) ? null : Number(replay.value);
    draw();
  } });
  let all = own.known, shown = all;
  const redraw = redrawing({
    head: () => views.headline(run),
    axes: () => views.axes(axis, each => { axis = each; draw(); }, run.usd > 0),
    chart: () => views.progressPart(run, shown, axis, all.length),
    lanes: () => whole.lanes(shown),
    funnel: () => views.funnel(shown),
    budget: () => views.budget(run),
    newest: () => views.newest(run, shown),
    events: () => steerEvents(run, state.upTo === null ? null : shown.at(-1)?.n + 1, views.stepLink),
  }, parts, fill);
  const draw = () => {
    run = { ...run, ...runs.get(name), step: n => own.list[n] };
    all = own.known; shown = state.upTo === null ? all : all.slice(0, state.upTo);
    replay.max = Math.max(all.length, 1);
    replay.value = shown.length;
    if (axis === "usd" && !(run.usd > 0)) axis = "evaluations";
    parts.steer.hidden = !run.steers || run.state !== "running";
    steering.hidden = parts.steer.hidden && !run.steering.events.length;
    redraw();
  };
  const steering = views.section("Steering", parts.steer, parts.events);
  const drawRest = () => {
    fill("archive", views.archive(run));
    fill("cases", views.cases(run.cases) ?? h("p", { class: "note" }, "Nothing has been timed yet."));
    fill("way", views.way({ ...run, step: n => own.list[n] }));
    fill("shapes", whole.shapes(run, views.stepLink));
  };
  const drawLineage = async event => {
    if (!event.target.open) return;
    const found = await get("lineage", { name });
    fill("change", whole.change(found, name, views.stepLink));
    fill("picture", whole.lineage(found.picture, n => `${views.link(name)}/step/${n}`));
  };
  const isHere = () => show === draw;
  show = draw;
  let asking = false, took = 0;  // what takes the server long is asked for seldom
  hear = async event => {
    soon();
    const line = event.runs?.find(each => each.name === name);
    if (line) own.load(line.asked, soon);
    if (asking || !(line || event.steps?.[name])) return;
    asking = true;
    setTimeout(async () => {
      asking = false;
      if (!isHere()) return;
      const began = performance.now();
      run = await get("run", { name });
      took = performance.now() - began;
      if (isHere()) { soon(); drawRest(); }
    }, Math.max(1000, 10 * took));
  };
  const send = sender(name, async () => { run = await get("run", { name }); if (isHere()) draw(); });
  if (run.steers) fill("steer", steerForm(run, send), send.said);
  put(h("h1", {}, name), parts.head,
    views.section("Progress", parts.axes, parts.chart, h("label", { class: "controls" }, "Replay", replay)),
    views.section("Verdicts", parts.funnel), views.section("Budget", parts.budget),
    steering,
    views.section("Judges", parts.lanes), views.section("Cases of the best", parts.cases, parts.shapes),
    views.section("Way to the best", parts.way, h("details", { ontoggle: drawLineage }, h("summary", {}, "What changed, and the lineage"), parts.change, parts.picture)), views.section("Archive", parts.archive), views.section("Newest steps", parts.newest));
  draw(); drawRest();
  await own.load(run.asked, soon);
  if (isHere()) drawRest();
}

async function showStep(name, number, isNewest) {
  show = () => {}; hear = () => {};
  if (!/^\d{1,15}$/.test(number)) throw new Error(`Step '${number}' is no number; a link to a step ends in one, such as /step/12.`);
  const step = await get("step", { name, sequence: number });
  if (!isNewest()) return;
  put(views.stepPage(step));
  if (!step.steers || runs.get(name)?.state !== "running" || !step.program) return;
  const send = sender(name);
  main.append(views.section("Steering", steerStep(step, send), send.said));
}

// Stores a change of a run; `said` tells what came of it.
function sender(name, then = () => {}) {
  const said = h("p", { class: "note", role: "status" });
  const tell = (text, isBad) => { said.textContent = text; said.className = isBad ? "bad" : "note"; };
  const send = async (kind, value) => {
    try {
      tell(`Stored: ${(await steer(name, kind, value)).stored}. The search takes it before its next step.`);
      await then();
    } catch (error) {
      if (error instanceof NoToken) askToken();
      else tell(error.message, true);
    }
  };
  return Object.assign(send, { said });
}

// What the address names. An answer that comes after another link was followed shows nothing.
let turn = 0;
async function route() {
  takeGivenToken();
  turn += 1;
  const mine = turn, isNewest = () => turn === mine;
  const [kind, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(plain);
  try {
    if (kind === "run" && rest[1] === "step") await showStep(rest[0], rest[2] ?? "", isNewest);
    else if (kind === "run") await showRun(rest[0], isNewest);
    else if (kind === "compare") await showComparison(rest);
    else showList();
  } catch (error) {
    if (error instanceof NoToken) askToken();
    else if (isNewest()) showTrouble(error.message, kind === "run" && runs.has(rest[0]) && rest[0]);
  }
}

function showTrouble(message, name) {
  show = () => {}; hear = () => {};
  put(h("h1", {}, "Not shown"), h("p", { class: "bad" }, message),
    name && h("p", { class: "controls" }, h("a", { href: views.link(name) }, `Run ${name}`)));
}

function askToken() {
  say("the server wants its token", true);
  const field = h("input", { type: "password", id: "token", autocomplete: "off" });
  put(h("h1", {}, "Token"), h("p", { class: "note" }, "Open the address that evolve ui has printed, or enter its token."),
    h("form", { onsubmit: event => { event.preventDefault(); takeToken(field.value.trim()); location.reload(); } }, h("label", { for: "token" }, "Token "), field, " ", h("button", {}, "Show")));
  field.focus();
}

addEventListener("hashchange", () => { scrollTo(0, 0); route().then(() => main.focus({ preventScroll: true })); });
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const rel = { j: "next", k: "prev" }[event.key];
  if (rel) document.querySelector(`a[rel=${rel}]`)?.click();
});

takeGivenToken();
for (let wait = 500; ; wait = Math.min(2 * wait, 10000)) {
  try {
    for (const run of await get("runs")) runs.set(run.name, run);
    let isNew = true;
    await follow(event => {
      take(event);
      if (isNew) { isNew = false; wait = 500; steps.clear(); route(); }
    });
  } catch (error) {
    if (error instanceof NoToken) { askToken(); break; }
  }
  say("no connection to the server; trying again", true);
  await new Promise(done => setTimeout(done, wait));
}
