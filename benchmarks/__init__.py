"""Benchmarks: one file a question, each comparing side by side in one run.

``python -m benchmarks`` runs all of them at small size and fails where a ratio fell below its bound;
``python -m benchmarks NAME [OPTIONS]`` runs one in full (``--help`` lists its options).

A file has ``main(argv)`` for the full run and ``smoke() -> Iterable[Ratio]`` for the small one.
"""
