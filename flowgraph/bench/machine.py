"""The machine and the versions that figures were measured with."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_LIBRARIES = ("attention-flowgraph", "numpy", "igraph", "networkx", "ortools", "scipy", "PyMaxflow")


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory, system, and how busy the machine is."""
    import psutil

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "load_average": list(psutil.getloadavg()),
    }


def versions() -> dict[str, str]:
    """Python, flowgraph, and every installed library that solves or converts."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
