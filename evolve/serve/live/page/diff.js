// Two texts side by side: the longest common subsequence of lines, after equal ends are set aside.
import { h } from "./dom.js";

const MOST = 2000; // lines of the differing middle: the table grows with their product
const AROUND = 3;

export function rows(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const same = lines => lines.map(line => [line, line]);
  const middle = compare(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...same(a.slice(0, head)), ...middle, ...same(tail ? a.slice(-tail) : [])];
}

function compare(a, b) {
  if (a.length > MOST || b.length > MOST) return paired(a, b);
  const width = b.length + 1, table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) {
    table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1
      : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
  }
  const found = [];
  let i = 0, j = 0, out = [], into = [];
  const close = () => { found.push(...paired(out, into)); out = []; into = []; };
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { close(); found.push([a[i++], b[j++]]); }
    else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) out.push(a[i++]);
    else into.push(b[j++]);
  }
  close();
  return found;
}
const paired = (a, b) => Array.from({ length: Math.max(a.length, b.length) }, (_, n) => [a[n] ?? null, b[n] ?? null]);

// Rows of equal lines, and of lines that stand for others: where a page is narrow, its style sheet shows them as one column.
export function sideBySide(before, after, same = "The source is that of its parent.", names = ["Parent", "This program"]) {
  const all = rows(before, after);
  const near = all.map(([a, b]) => a !== b);
  if (!near.includes(true)) return h("p", { class: "note" }, same);
  const shown = near.map((_, index) => near.slice(Math.max(0, index - AROUND), index + AROUND + 1).includes(true));
  const body = [];
  for (let index = 0; index < all.length; index += 1) {
    if (near[index]) {
      let end = index;
      while (near[end]) end += 1;
      const block = all.slice(index, end), side = (place, kind) => h("td", {}, block.filter(pair => pair[place] !== null).map(pair => h("div", { class: kind }, pair[place])));
      body.push(h("tr", {}, side(0, "del"), side(1, "add")));
      index = end - 1;
    } else if (shown[index]) body.push(h("tr", { class: "same" }, h("td", {}, h("div", {}, all[index][0])), h("td", {}, h("div", {}, all[index][1]))));
    else if (index === 0 || shown[index - 1]) body.push(h("tr", { class: "gap" }, h("td", { colspan: 2 }, "⋯")));
  }
  return h("table", { class: "sides" }, h("thead", { class: "hidden" }, h("tr", {}, names.map(each => h("th", { scope: "col" }, each)))), h("tbody", {}, body));
}
