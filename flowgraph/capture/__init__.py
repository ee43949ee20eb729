"""Hugging Face forward pass in, traces out.

``flowgraph.trace`` is :func:`flowgraph.capture.run.trace`; the module ``flowgraph.capture.trace`` holds
:class:`~flowgraph.capture.trace.Trace` and needs no torch.
"""
