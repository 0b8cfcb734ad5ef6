// Changes of a search under way, by holders of the token: each is an event of its run.
import { h, unit, words } from "./dom.js";

const BUTTONS = { pin: "Pin", ban: "Ban", release: "Release" };

const MEANING = "Pinned programs are the parents of new ones, in turn; banned ones never are. Release undoes both.";

const field = (id, label, input) => [h("label", { for: id }, label), input];
const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);

// `send(kind, value)` stores a change and resolves once it is stored; `run` is of the first drawing.
export function steerForm(run, send) {
  const note = h("textarea", { id: "steer-note", rows: 3, maxlength: 4000 }, run.steering.note);
  const step = h("input", { id: "steer-step", inputmode: "numeric", pattern: "[0-9]+", size: 6 });
  const program = h("textarea", { id: "steer-program", rows: 8, spellcheck: "false" });
  const names = Object.keys(run.limits);
  const limit = h("select", { id: "steer-limit" }, names.map(name => h("option", { value: name }, unit(name))));
  const amount = h("input", { id: "steer-amount", size: 12, placeholder: "100, 5 or 30m" });
  return h("div", { class: "steer" },
    h("div", { class: "controls" }, button("Pause", () => send("pause")), button("Continue", () => send("continue")),
      button("End", () => confirm("End the search, verify its best program and finish?") && send("end"))),
    field("steer-note", "Note in every prompt", note),
    h("div", { class: "controls" }, button("Set note", () => send("note", note.value))),
    h("div", { class: "controls" }, field("steer-step", "Program of step", step),
      Object.entries(BUTTONS).map(([kind, label]) => button(label, () => send(kind, step.value.trim())))),
    h("p", { class: "note" }, MEANING),
    names.length > 0 && h("div", { class: "controls" }, field("steer-limit", "Add to the limit", limit), field("steer-amount", "amount", amount),
      button("Add", () => send("budget", `${limit.value}=${amount.value.trim()}`))),
    h("details", {}, h("summary", {}, "Judge a program of yours"), field("steer-program", "A Python module with ModelNew", program),
      h("div", { class: "controls" }, button("Judge", () => send("program", program.value)))));
}

// Pin and ban for the program of one step.
export const steerStep = (step, send) => [h("div", { class: "controls" },
  Object.entries(BUTTONS).map(([kind, label]) => button(`${label} as parent`, () => send(kind, String(step.n))))), h("p", { class: "note" }, MEANING)];

// What was changed, by whom and from which step on; in a replay what was by then.
export function steerEvents(run, upTo, stepLink) {
  const events = run.steering.events.filter(each => upTo === null || (each.from !== null && each.from < upTo));
  if (!events.length) return null;
  return h("ol", { class: "path" }, events.map(each => h("li", {},
    h("b", {}, each.program_of === null ? words(each.text) : [`${each.text} the program of `, stepLink(run.name, each.program_of)]),
    h("span", { class: "quiet" }, ` by ${each.user}, ${each.from === null ? "not taken yet" : `from step ${each.from}`}`))));
}
