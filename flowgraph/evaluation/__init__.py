"""Is an attribution right? Faithfulness to the model, and word alignment against a gold standard.

:func:`~flowgraph.evaluation.run.evaluate` compares attributions with what happens to the model's own score when a
token is blanked out, and with gradients; :mod:`~flowgraph.evaluation.alignment` scores cross-attention as a word
alignment.
"""
