// What an agent said, thought and did in a step, or a model before it answered: loaded once it is opened, in parts.
import { get, text } from "./data.js";
import { h, words } from "./dom.js";

const pre = (label, content) => content ? [h("p", { class: "note" }, label), h("pre", { class: "text", tabindex: 0, "aria-label": label }, content)] : null;
const KINDS = { thinking: "Thought", event: "Event" };

export function transcript(step, round, number, stepLink) {
  const about = round.transcript, list = h("ol", { class: "turns" }), foot = h("p", { class: "controls", role: "status" });
  const query = { name: step.run, sequence: step.n, reply: number };
  let shown = 0, loading = false;
  const say = (...content) => foot.replaceChildren(...content.flat().filter(Boolean));
  const more = async () => {
    if (loading) return;
    loading = true;
    say("Loading");
    try {
      const found = await get("transcript", { ...query, after: shown });
      list.append(...found.turns.map(each => turn(each, n => stepLink(step.run, n))));
      shown += found.turns.length;
      say(`${shown.toLocaleString("en")} of ${found.total.toLocaleString("en")} turns`,
        shown < found.total && h("button", { type: "button", onclick: more }, "Show more"),
        h("button", { type: "button", onclick: save }, "Download the whole text"));
    } catch (error) { failed(error, more); }
    loading = false;
  };
  const failed = (error, again) => say(h("span", { class: "bad" }, error.message), h("button", { type: "button", onclick: again }, "Try again"));
  const save = async () => {
    try {
      const address = URL.createObjectURL(new Blob([await text("transcript.txt", query)], { type: "text/plain" }));
      h("a", { href: address, download: `${step.run}-step-${step.n}-transcript.txt` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    } catch (error) { failed(error, save); }
  };
  return h("details", { ontoggle: event => { if (event.target.open && !shown) more(); } },
    h("summary", {}, `${about.title} (${about.chars.toLocaleString("en")} characters)`),
    list, foot);
}

function turn(each, link) {
  const cut = each.cut > 0 && h("p", { class: "note" }, `${each.cut.toLocaleString("en")} more characters are in the download.`);
  if (each.kind === "text") return h("li", {}, h("p", { class: "said" }, each.text), cut);
  const first = each.text.split("\n")[0].slice(0, 100);
  const parts = [pre(each.kind === "call" ? "Input" : "Text", each.text), pre("Program", each.program), pre("Answer of the tool", each.result), cut];
  if (!each.program) return h("li", {}, h("details", {}, h("summary", {}, h("b", {}, each.kind === "call" ? words(each.tool) : KINDS[each.kind] ?? each.kind), ` ${first}`), parts));
  const tried = each.tried ? [" ", link(each.tried.sequence), ` ${words(each.tried.status || "not judged yet")} ${each.tried.speedup}`, each.tried.span && h("span", { class: "quiet" }, ` ${each.tried.span}`)]
    : h("span", { class: "quiet" }, " The run has no such program.");
  return h("li", {}, h("p", {}, h("b", {}, "Program submitted"), tried), h("details", {}, h("summary", {}, `Program and answer: ${first}`), parts));
}
