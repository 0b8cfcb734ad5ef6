// Redraws the parts of a page that are on the screen at once, and the others a second later.
const LATER_MS = 1000;
const MARGIN = "200px";  // what is about to be scrolled into view counts as on the screen

// `contents` gives what a part shows, by name; `fill(name, content)` puts it into `parts[name]`. The first
// drawing is of all parts.
export function redrawing(contents, parts, fill) {
  const seen = new Set(Object.keys(contents)), stale = new Set();
  const names = new Map(Object.keys(contents).map(name => [parts[name], name]));
  const draw = name => { stale.delete(name); fill(name, contents[name]()); };
  const observer = new IntersectionObserver(changes => {
    for (const { target, isIntersecting } of changes) {
      const name = names.get(target);
      if (isIntersecting) seen.add(name); else seen.delete(name);
      if (isIntersecting && stale.has(name)) draw(name);
    }
  }, { rootMargin: MARGIN });
  for (const part of names.keys()) observer.observe(part);
  let waits = false;
  // A task for each part, so that news has to wait for one of them at most.
  const later = () => {
    const [name] = stale;
    if (name !== undefined && parts[name].isConnected) draw(name); else stale.clear();
    waits = stale.size > 0;
    if (waits) setTimeout(later);
  };
  return () => {
    for (const name of names.values()) if (seen.has(name)) draw(name); else stale.add(name);
    if (!waits && stale.size) { waits = true; setTimeout(later, LATER_MS); }
  };
}
