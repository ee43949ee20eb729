"""Traces on disk: what was saved is what is loaded, and nothing else is taken for a trace."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from flowgraph.capture.trace import Trace
from flowgraph.errors import FlowgraphError


def make(**changes):
    rng = np.random.default_rng(0)
    fields = {
        "arrays": {
            "attention": rng.random((2, 3, 3)).astype(np.float32),
            "norm": rng.random((2, 4, 3, 3)),
        },
        "extras": {"norms/a": rng.random((2, 4, 3))},
        "tokens": ("[CLS]", "Seán 💩 <&>\n", ""),
        "raw_tokens": ("[CLS]", "SeÃ¡n", "\ud83d"),
        "token_ids": (1, 2, 3),
        "word_ids": (None, 0, 1),
        "special": (True, False, False),
        "meta": {"model": "m", "layers": 2, "row_mass": [[1.0, 0.1, 1 / 3]], "kinds": {"attention": {}}},
    }
    return Trace(**{**fields, **changes})


def same(one, two):
    assert one.kinds == two.kinds
    for name in ("arrays", "extras"):
        mine, theirs = getattr(one, name), getattr(two, name)
        assert list(mine) == list(theirs)
        for kind, array in mine.items():
            parts = array.items() if not isinstance(array, np.ndarray) else [("", array)]
            for part, values in parts:
                other = theirs[kind][part] if part else theirs[kind]
                assert other.dtype == values.dtype
                np.testing.assert_array_equal(other, values)
    for name in Trace.__dataclass_fields__:
        if name not in ("arrays", "extras"):
            assert getattr(one, name) == getattr(two, name)


def test_round_trip(tmp_path):
    path = tmp_path / "a trace.safetensors"
    make().save(path)
    same(Trace.load(path), make())
    assert os.listdir(tmp_path) == [path.name]


def test_round_trip_of_an_encoder_decoder(tmp_path):
    rng = np.random.default_rng(1)
    parts = {
        "encoder": rng.random((1, 3, 3)),
        "decoder": rng.random((2, 2, 2)),
        "cross": rng.random((2, 2, 3)),
    }
    trace = make(
        arrays={"norm": parts, "attention": {k: v.astype(np.float32) for k, v in parts.items()}},
        target_tokens=("a", "b"),
        target_raw_tokens=("▁a", "▁b"),
        target_token_ids=(4, 5),
        target_word_ids=(0, 1),
        target_special=(False, False),
    )
    trace.save(tmp_path / "t")
    same(Trace.load(tmp_path / "t"), trace)


def test_arrays_cannot_be_changed():
    trace = make()
    with pytest.raises(ValueError, match="read-only"):
        trace["attention"][0, 0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        trace.extras["norms/a"][0] = 1


def test_kinds_are_found_by_any_spelling_and_missed_with_a_list():
    trace = make()
    assert trace.kinds == ("attention", "norm")
    assert "Attention " in trace
    np.testing.assert_array_equal(trace["ATTENTION"], trace["attention"])
    with pytest.raises(FlowgraphError, match=r"'alti' was not traced; the trace holds attention, norm"):
        trace["alti"]
    with pytest.raises(FlowgraphError, match="edges: 3 was not traced"):
        trace[3]


def test_an_old_file_survives_a_failed_save(tmp_path):
    path = tmp_path / "t"
    make().save(path)
    before = path.read_bytes()
    with pytest.raises(FlowgraphError, match=r"trace: meta holds .* which a file cannot keep"):
        make(meta={"x": object()}).save(path)
    assert path.read_bytes() == before
    with pytest.raises(FlowgraphError, match=r"path: .* cannot be written"):
        make().save(tmp_path / "absent" / "t")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FlowgraphError, match=r"path: .* cannot be written"):
        make().save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "t"]


def header_of(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_header(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_cut_files_are_refused(tmp_path, keep):
    path = tmp_path / "t"
    make().save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FlowgraphError, match="cannot be read as a trace"):
        Trace.load(path)


@pytest.mark.parametrize("entry", ["tokens", "meta", "kinds", "format"])
def test_headers_that_miss_something_are_refused(tmp_path, entry):
    path = tmp_path / "t"
    make().save(path)
    header, body = header_of(path)
    inner = json.loads(header["__metadata__"]["flowgraph"])
    del inner[entry]
    header["__metadata__"]["flowgraph"] = json.dumps(inner)
    write_header(path, header, body)
    with pytest.raises(FlowgraphError, match="not a whole flowgraph trace"):
        Trace.load(path)


def test_other_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "plain")
    with pytest.raises(FlowgraphError, match="a safetensors file, but not a flowgraph trace"):
        Trace.load(tmp_path / "plain")
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(FlowgraphError, match="cannot be read as a trace"):
        Trace.load(tmp_path / "pickle")
    with pytest.raises(FlowgraphError, match="is not a file"):
        Trace.load(tmp_path / "absent")


def test_formats_of_the_future_are_refused_by_number(tmp_path):
    path = tmp_path / "t"
    make().save(path)
    header, body = header_of(path)
    inner = json.loads(header["__metadata__"]["flowgraph"]) | {"format": 99}
    header["__metadata__"]["flowgraph"] = json.dumps(inner)
    write_header(path, header, body)
    with pytest.raises(FlowgraphError, match=r"trace format 99.*update flowgraph"):
        Trace.load(path)


def test_loading_needs_no_torch(tmp_path):
    make().save(tmp_path / "t")
    code = (
        "import sys; from flowgraph.capture.trace import Trace; "
        f"Trace.load({str(tmp_path / 't')!r}); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
