"""A user's Python file, run so that the solvers it registers can be compared."""

from __future__ import annotations

import importlib.util
import sys
from os import PathLike, fspath
from pathlib import Path

from flowgraph.errors import FlowgraphError


def load_script(path: str | PathLike[str]) -> list[str]:
    """Run the file once; the names of the solvers that it registered.

    Its classes travel to other processes by value, so that it needs no place on the search path. Raises
    :class:`~flowgraph.errors.FlowgraphError` where it raises.
    """
    import cloudpickle

    from flowgraph import solvers

    before = set(solvers.names())
    name = f"_flowgraph_script_{len(sys.modules)}_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FlowgraphError(f"load: {fspath(path)!r} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise FlowgraphError(f"load: {fspath(path)!r} raised {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return sorted(set(solvers.names()) - before)
