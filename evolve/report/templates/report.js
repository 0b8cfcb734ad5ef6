"use strict";
for (const button of document.querySelectorAll(".commands button")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
const picture = document.querySelector(".lineage svg");
if (picture) {
  const nodes = new Map([...picture.querySelectorAll(".node")].map((node) => [node.dataset.node, node]));
  const edges = new Map([...picture.querySelectorAll("[data-child]")].map((edge) => [edge.dataset.child, edge]));
  const show = (start, on) => {
    for (let node = start; node; node = nodes.get(node.dataset.parent)) {
      node.classList.toggle("lit", on);
      edges.get(node.dataset.node)?.classList.toggle("lit", on);
    }
  };
  for (const node of nodes.values()) {
    node.addEventListener("pointerenter", () => show(node, true));
    node.addEventListener("pointerleave", () => show(node, false));
  }
}
