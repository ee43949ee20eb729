"""Peak memory of a piece of work, as the operating system counts it."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class PeakMemory:
    """``with peak: ...``, then ``peak.peak_bytes``: the most the process held inside, beyond what it held when the
    object was made.

    Linux keeps the peak (``VmHWM``) and lets a process reset it; libraries in C are counted as Python is. Elsewhere
    ``peak_bytes`` is None: the other systems' peaks cannot be reset, and sampling misses short ones.
    """

    def __init__(self) -> None:
        gc.collect()
        self._before = _read("VmRSS")
        self.peak_bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        self._reset = False
        with suppress(OSError):
            _RESET.write_text("5")
            self._reset = True
        return self

    def __exit__(self, *_: Any) -> None:
        peak = _read("VmHWM") if self._reset else None
        self.peak_bytes = None if peak is None or self._before is None else max(0, peak - self._before)


def _read(field: str) -> int | None:
    """A figure of ``/proc/self/status`` in bytes."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None
