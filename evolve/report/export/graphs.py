"""Lineage graphs as files for other tools: GraphML, node-link JSON, Graphviz DOT."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.core.errors import UsageError
from evolve.report.text import write_text

if TYPE_CHECKING:
    import networkx

SUFFIXES = (".graphml", ".json", ".dot")


def export(graph: "networkx.DiGraph", path: str | Path) -> Path:
    """Write a lineage graph in the format that the suffix names.

    Raises:
        UsageError: another suffix, or a path that cannot be written.
    """
    import networkx

    path = Path(path)
    match path.suffix.lower():
        case ".graphml":
            text = "\n".join(networkx.generate_graphml(graph, prettyprint=False)) + "\n"
        case ".json":
            text = json.dumps(networkx.node_link_data(graph, edges="edges"), indent=1) + "\n"
        case ".dot":
            text = "\n".join(_dot_lines(graph)) + "\n"
        case suffix:
            raise UsageError(
                f"output {str(path)!r}: no lineage format has the suffix {suffix!r}; "
                f"use one of {', '.join(SUFFIXES)}"
            )
    return write_text(path, text)


def _dot_lines(graph: "networkx.DiGraph") -> Iterator[str]:
    yield "digraph lineage {"
    yield "  node [shape=box, style=rounded];"
    for digest, node in graph.nodes(data=True):
        label = f"#{node['sequence']} {node['operator']}\n{_summary(node)}"
        yield f"  {_quoted(digest)} [label={_quoted(label)}];"
    for parent, child, edge in graph.edges(data=True):
        style = "solid" if edge["rank"] == 0 else "dashed"
        label = _quoted(edge["operator"])
        yield f"  {_quoted(parent)} -> {_quoted(child)} [label={label}, style={style}];"
    yield "}"


def _summary(node: dict[str, Any]) -> str:
    if "speedup" in node:
        return f"{node['speedup']:.3g}x ({node['speedup_low']:.3g} to {node['speedup_high']:.3g})"
    return str(node.get("status", "not evaluated"))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
