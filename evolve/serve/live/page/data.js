// The token lies in the fragment, which a browser sends nowhere, and from then on in the browser.
const KEY = "evolve-token";
// A part of an address as text; as it stands if it is not encoded as it should be.
export function plain(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}
export function takeGivenToken() {
  const given = /^#token=([^/]+)(\/.*)?$/.exec(location.hash);
  if (!given) return;
  localStorage.setItem(KEY, plain(given[1]));
  history.replaceState(null, "", `#${given[2] ?? "/"}`);
}
export class NoToken extends Error {}
export const takeToken = token => localStorage.setItem(KEY, token);

async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${localStorage.getItem(KEY) ?? ""}`, ...options.headers };
  const answer = await fetch(`api/${path}`, { ...options, headers });
  if (answer.status === 401) throw new NoToken();
  if (!answer.ok) {
    const { detail } = await answer.json();
    throw new Error(typeof detail === "string" ? detail : `status ${answer.status}`);
  }
  return answer;
}
export async function steer(name, kind, value = "") {
  const headers = { "Content-Type": "application/json" };
  return (await ask("steer", { method: "POST", headers, body: JSON.stringify({ name, kind, value }) })).json();
}
function asked(path, values) {
  const query = new URLSearchParams(values).toString();
  return ask(query ? `${path}?${query}` : path);
}
export const get = async (path, values = {}) => (await asked(path, values)).json();
export const text = async (path, values = {}) => (await asked(path, values)).text();

// Calls `take` with each event, until the connection ends.
export async function follow(take) {
  const reader = (await ask("events")).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) take(JSON.parse(part.slice(6)));
  }
}

// The steps of a run by number. What changes while they are loaded is newer, and stands.
export class Steps {
  constructor(name) {
    this.name = name;
    this.list = [];
    this.whole = 0;  // none is missing below this number
    this.loading = null;
  }
  put(steps, isNews = false) {
    for (const step of steps) if (isNews || !this.list[step.n]) this.list[step.n] = step;
    while (this.list[this.whole]) this.whole += 1;
  }
  // In order. It is not copied unless some are missing, so that an update costs the same in a long run.
  get known() { return this.whole === this.list.length ? this.list : this.list.filter(Boolean); }
  // Loads all that are missing up to a number; `shown` is called after each part.
  load(asked, shown) {
    this.loading ??= this.parts(asked, shown).finally(() => { this.loading = null; });
    return this.loading;
  }
  async parts(asked, shown) {
    for (;;) {
      if (this.whole >= asked) return;
      const found = await get("steps", { name: this.name, after: this.whole - 1 });
      this.put(found);
      if (!found.length) return;
      shown();
    }
  }
}
