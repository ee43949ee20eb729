"""Attributions: how much of each input token a later token holds, by raw attention, rollout or flow.

``make`` computes them, ``result`` is what one holds, ``merging`` joins pieces of words, ``serial`` is their JSON.
"""

from flowgraph.attribution.make import METHODS, attribute, attribute_graph
from flowgraph.attribution.result import Attribution, Score

__all__ = ["METHODS", "Attribution", "Score", "attribute", "attribute_graph"]
