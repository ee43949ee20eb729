"""GraphML to igraph: attention finds the phrases of a sentence.

Writes the layered graph of a sentence, reads the file with igraph alone, as any program could, and lays the levels on
each other: two tokens are as close as attention between them, over all layers, is strong. Communities (Leiden) of
that graph are the sentence's phrases. It is written back as GraphML, for Gephi or Cytoscape to colour::

    python examples/communities.py communities.graphml
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import igraph
from rich.console import Console
from rich.table import Table

import flowgraph as fg
from flowgraph.embedded import embedded_model

TEXT = "The farmers who own the fields never leave, although the river floods every spring."


def write_graph(path: Path) -> None:
    trace = fg.trace(str(embedded_model()), None, TEXT)
    fg.LayeredGraph.from_trace(trace, residual=None).write_graphml(path)


def token_graph(path: Path) -> igraph.Graph:
    """One vertex a token, special ones left out; ``capacity`` summed over layers and both directions."""
    graph = igraph.Graph.Read_GraphML(str(path))
    graph.contract_vertices([int(p) for p in graph.vs["position"]], combine_attrs="first")
    graph.to_undirected(combine_edges={"capacity": "sum"})
    graph.simplify(combine_edges={"capacity": "sum"})
    graph.delete_vertices([v for v in graph.vs if v["special"]])
    return graph


def find_communities(graph: igraph.Graph) -> list[list[str]]:
    """Their tokens; the number of each vertex's community becomes its attribute ``community``."""
    random.seed(0)
    igraph.set_random_number_generator(random)
    found = graph.community_leiden(objective_function="modularity", weights="capacity", n_iterations=-1)
    graph.vs["community"] = found.membership
    return [graph.vs[sorted(members)]["token"] for members in found]


def main(path: str = "communities.graphml") -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentence.graphml"
        write_graph(file)
        graph = token_graph(file)
    table = Table(title=TEXT, title_justify="left")
    for column in ("community", "tokens"):
        table.add_column(column)
    for number, tokens in enumerate(find_communities(graph)):
        table.add_row(str(number), " ".join(tokens))
    graph.write_graphml(path)
    console = Console()
    console.print(table, markup=False)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
