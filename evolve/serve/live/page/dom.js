// Elements are made of text nodes only: nothing that a candidate wrote is read as markup.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--") || name === "width%") {
      node.style.setProperty(name === "width%" ? "width" : name, name === "width%" ? `${value}%` : value);
    } else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter(each => each !== null && each !== undefined && each !== false));
  return node;
}
export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
// Puts new content into a part, in which the same link or field keeps the focus, and tables their scroll.
const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";
const keyOf = node => [node.localName, node.id, node.getAttribute("href"), node.getAttribute("aria-label"), node.textContent].join("\n");
export function refill(node, ...content) {
  const held = node.contains(document.activeElement) && document.activeElement !== node ? keyOf(document.activeElement) : null;
  const scrolled = [...node.querySelectorAll(".scroll")].map(each => each.scrollLeft);
  node.replaceChildren(...content.flat(Infinity).filter(Boolean));
  if (held !== null) [...node.querySelectorAll(FOCUSABLE)].find(each => keyOf(each) === held)?.focus({ preventScroll: true });
  if (scrolled.some(Boolean)) [...node.querySelectorAll(".scroll")].forEach((each, index) => { each.scrollLeft = scrolled[index] ?? 0; });
}
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// As many digits as in the report (`evolve.report.text.ratio_text`): a number has one form on all pages.
const digits = value => value >= 100 ? 0 : value < 0.1 || (value >= 0.9 && value < 1.1) ? 3 : 2;
export const times = value => `${value.toFixed(digits(value))}×`;
export const ratio = r => r ? `${times(r[0])}` : "";
export const span = r => r ? `${times(r[1])} to ${times(r[2])}` : "";
export const words = text => String(text ?? "").replaceAll("_", " ");
export const unit = name => name === "usd" ? "USD" : words(name);  // of a limit or an axis
// As `evolve.report.text.duration_text`: 80 s of 80 s are not "1 min".
export function duration(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)}\u00a0s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}\u00a0min ${whole % 60}\u00a0s` : `${Math.floor(minutes / 60)}\u00a0h ${minutes % 60}\u00a0min`;
}
