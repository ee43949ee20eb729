"""The input as records: every format, and every way in which one record can be bad."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tracemalloc

import pyarrow as pa
import pytest
from pyarrow import parquet

from flowgraph import FlowgraphError
from flowgraph.corpus import lines
from flowgraph.corpus.formats import InputOptions, format_of
from flowgraph.corpus.reader import Reader
from flowgraph.corpus.records import content_of, key_of


def read(path, **options):
    reader = Reader(str(path), InputOptions(**options))
    try:
        return list(reader)
    finally:
        reader.close()


def texts(path, **options):
    return [record.text for record in read(path, **options)]


def test_text_a_line_a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\ntwo\u2028still two\n\nfour".encode())
    records = read(path)
    assert [r.text for r in records] == ["one", "two\u2028still two", None, "four"]
    assert [r.id for r in records] == ["1", "2", "3", "4"]
    assert records[2].problem == "empty"


def test_jsonl(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = ['{"id": "x", "text": "one"}', "", '{"text": "two", "id": 7}', '{"text": "three"}']
    path.write_text("\n".join(lines))
    records = read(path)
    assert [(r.id, r.text, r.line) for r in records] == [("x", "one", 1), ("7", "two", 3), ("4", "three", 4)]
    assert records[2].name is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "cut', "broken JSON"),
        (b'["text"]', "not a JSON object, but a list"),
        (b'{"other": "x"}', "no column 'text'"),
        (b'{"text": 5}', "not text: 'text' is a int"),
        (b'{"text": null}', "not text: 'text' is null"),
        (b'{"text": "  "}', "empty"),
        (b'{"text": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"text": "caf\xe9"}', "invalid UTF-8: byte 0xe9 at 13"),
        (b'{"text": "a", "id": [1]}', "the id in column 'id' is a list"),
        (b'{"text": "a", "id": "\\ud83d"}', "the id in column 'id' is not text"),
        (b"[" * 100_000, "broken JSON"),
    ],
)
def test_one_bad_line_stops_nothing(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    before, bad, after = read(path)
    assert (before.text, after.text) == ("before", "after")
    assert bad.text is None
    assert bad.line == 2
    assert problem in bad.problem


def test_csv_quotes_commas_and_line_ends(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\r\na,"one, ""two""\r\nthree"\r\n\r\nb,four\r\n')
    records = read(path)
    assert [(r.id, r.text, r.line) for r in records] == [("a", 'one, "two"\nthree', 2), ("b", "four", 5)]


def test_a_quote_that_is_never_closed_costs_its_own_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\na,one\nb,"two\nc,three\nd,four\n')
    records = read(path)
    assert [(r.line, r.text) for r in records] == [(2, "one"), (3, None), (4, "three"), (5, "four")]
    assert "broken CSV" in records[1].problem


def test_csv_with_other_widths_and_bytes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\na,one,more\nb,caf\xe9\nc,good\n")
    records = read(path)
    assert [r.text for r in records] == [None, None, "good"]
    assert "3 fields where the table has 2 columns" in records[0].problem
    assert "invalid UTF-8" in records[1].problem


def test_tsv_quotes_are_characters(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"open\t1\nit \'s "fine"\t0\n')
    assert texts(path) == ['"open', 'it \'s "fine"']


def test_a_table_without_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\t1\ntwo\t0\n")
    assert texts(path, header=False, text_column="1") == ["one", "two"]
    with pytest.raises(
        FlowgraphError, match=r"text_column: the input has no column 'text', only 'one', '1'.*--no-header"
    ):
        read(path)


def test_pairs(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"p": "one", "h": "two"}\n{"p": "one"}\n')
    good, bad = read(path, pair_columns=("p", "h"))
    assert good.text == ("one", "two")
    assert bad.problem == "no column 'h'"


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": ["one", None, ""], "id": [3, 4, 5], "more": [0, 0, 0]}), path)
    records = read(path)
    assert [(r.id, r.text) for r in records] == [("3", "one"), ("4", None), ("5", None)]
    with pytest.raises(FlowgraphError, match="id_column: the input has no column 'name'"):
        read(path, id_column="name")


def test_parquet_string_that_is_no_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    column = pa.array([b"one", b"caf\xe9"]).view(pa.string())
    parquet.write_table(pa.table({"text": column}), path)
    good, bad = read(path)
    assert good.text == "one"
    assert bad.problem == "invalid UTF-8"


@pytest.mark.parametrize(
    ("column", "kind", "remedy"),
    [
        (pa.array([b"one", b"caf\xe9"]), "binary", "decode it from its encoding to string"),
        (
            pa.array([b"one", b"two"], pa.large_binary()),
            "large_binary",
            "decode it from its encoding to string",
        ),
        (pa.array([1, 2]), "int64", "cast it to string"),
        (pa.array([["one"], ["two"]]), "list<", "cast it to string"),
    ],
)
def test_a_parquet_column_that_is_no_text_is_one_error(tmp_path, column, kind, remedy):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"review": column}), path)
    with pytest.raises(
        FlowgraphError, match=rf"^text_column: the column 'review' is of type {kind}.*{remedy}"
    ):
        read(path, text_column="review")


def test_parquet_text_and_ids_of_every_type_that_fits(tmp_path):
    path = tmp_path / "a.parquet"
    for text in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        for id_type, name in ((pa.int8(), "7"), (pa.float64(), "7.0"), (pa.string(), "7")):
            ids = pa.array([7]).cast(id_type) if id_type != pa.string() else pa.array(["7"])
            column = (
                pa.array(["one"]).dictionary_encode()
                if pa.types.is_dictionary(text)
                else pa.array(["one"], text)
            )
            parquet.write_table(pa.table({"text": column, "id": ids}), path)
            assert [(r.id, r.text) for r in read(path)] == [(name, "one")]
    parquet.write_table(pa.table({"text": ["one"], "id": [[7]]}), path)
    with pytest.raises(
        FlowgraphError, match=r"^id_column: the column 'id' is of type list<.*not string or a number"
    ):
        read(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_two_columns_of_one_name_are_refused_where_they_matter(tmp_path, name):
    path = tmp_path / name

    def write(*columns):
        if name.endswith("parquet"):
            parquet.write_table(pa.Table.from_arrays([pa.array(["one"])] * len(columns), columns), path)
        else:
            mark = "," if name.endswith("csv") else "\t"
            path.write_text(f"{mark.join(columns)}\n{mark.join(['one'] * len(columns))}\n")

    write("text", "text")
    with pytest.raises(
        FlowgraphError, match=r"^text_column: the input has 2 columns called 'text'; give them names"
    ):
        read(path)
    write("text", "id", "id")
    with pytest.raises(FlowgraphError, match=r"^id_column: the input has 2 columns called 'id'"):
        read(path)
    assert texts(path, id_column="text") == ["one"]
    write("text", "more", "more")
    assert texts(path) == ["one"]


def test_json_lines_without_a_column_asked_for_are_one_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\nbroken\n{"text": "two", "name": "x"}\n')
    assert [r.id for r in read(path, id_column="name")] == ["1", "2", "x"]
    with pytest.raises(
        FlowgraphError, match=r"^id_column: the input has no column 'key', only 'text', 'name'; pass "
    ):
        read(path, id_column="key")
    with pytest.raises(FlowgraphError, match=r"^text_column: the input has no column 'review'"):
        read(path, text_column="review")
    path.write_text("broken\n")
    assert len(read(path, id_column="key")) == 1
    path.write_text("")
    assert read(path, id_column="key") == []


def test_the_first_thousand_objects_tell_the_columns(tmp_path):
    path = tmp_path / "a.jsonl"
    for before in (999, 1000):
        path.write_text('{"text": "one"}\n' * before + '{"text": "one", "name": "x"}\n')
        if before < 1000:
            assert read(path, id_column="name")[-1].id == "x"
        else:
            with pytest.raises(FlowgraphError, match="id_column"):
                read(path, id_column="name")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.txt", {"id_column": "id"}, "^id_column: plain text has no columns"),
        ("a.txt", {"text_column": "review"}, "^text_column: plain text has no columns"),
        ("a.txt", {"pair_columns": ("a", "b")}, "^pair_columns: plain text has no columns"),
        ("a.txt", {"header": False}, "^header: --no-header is for CSV and TSV"),
        ("a.jsonl", {"header": False}, "^header: --no-header is for CSV and TSV"),
        ("", {}, "^input: the address is empty"),
        ("zip://a.txt::none.zip", {}, "^input: .zip://a.txt::none.zip. cannot be opened: No such file"),
    ],
)
def test_options_that_the_format_cannot_heed(tmp_path, monkeypatch, name, options, message):
    monkeypatch.chdir(tmp_path)
    if name.startswith("a."):
        (tmp_path / name).write_text('{"text": "one"}\n')
    with pytest.raises(FlowgraphError, match=message):
        read(name, **options)


def test_parquet_that_is_none(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("no table")
    with pytest.raises(FlowgraphError, match="input: it is no Parquet file"):
        read(path)


def test_compressed(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n'))
    assert texts(path) == ["one"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert texts("-") == ["one", "two"]


def test_a_line_without_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * 35 + b"\n0123456789\nlast")
    records = read(path)
    assert [r.text for r in records] == ["short", None, "0123456789", "last"]
    assert "line longer than" in records[1].problem


def test_no_such_input(tmp_path):
    with pytest.raises(FlowgraphError, match=r"input: .* cannot be read: there is no such file"):
        read(tmp_path / "none.txt")
    with pytest.raises(FlowgraphError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(FlowgraphError, match="input_format: unknown format 'xml'"):
        read(tmp_path / "none.txt", form="xml")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.jsonl", "jsonl"),
        ("a.CSV", "csv"),
        ("a.tsv.gz", "tsv"),
        ("s3://b/a.parquet", "parquet"),
        ("a.log", "text"),
    ],
)
def test_formats_by_name(name, form):
    assert format_of(name) == form


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Reading ten times as much takes no more memory at its peak."""

    def peak(count):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for k in range(count):
                file.write(json.dumps({"id": k, "text": f"text number {k} " * 5}) + "\n")
        tracemalloc.start()
        reader = Reader(str(path), InputOptions())
        assert sum(1 for _ in reader) == count
        reader.close()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # what is made once
    assert peak(5000) < 1.5 * peak(500)


def test_records_are_known_by_id_text_and_occurrence(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 1, "text": "a"}\n{"id": 2, "text": "a"}\n{"id": 1, "text": "b"}\n{"id": 1, "text": "a"}\n'
    )
    first, other_id, other_text, again = read(path)
    assert len({r.identity for r in (first, other_id, other_text)}) == 3
    assert first.identity == again.identity
    assert key_of(first, 0) != key_of(again, 1)


def test_content_hash_can_be_computed_by_anyone():
    import hashlib

    assert content_of("Seán 💩") == hashlib.sha256("Seán 💩".encode()).hexdigest()
    assert content_of(("a", "b")) == hashlib.sha256(b'["a", "b"]').hexdigest()
    assert content_of(("a\0b", "c")) != content_of(("a", "b\0c"))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.bz2", "a.txt.xz", "a.txt.zip"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_files_are_one_error_that_names_them(tmp_path, name, damage):
    import fsspec

    path = tmp_path / name
    with fsspec.open(str(path), "wb", compression="infer") as file:
        file.write(random.Random(0).randbytes(40_000).hex().encode())
    path.write_bytes(path.read_bytes()[:-200] if damage == "cut" else b"no such thing at all\n" * 9)
    with pytest.raises(FlowgraphError, match=f"input: '.*{name}' is damaged, or not what its name says"):
        list(Reader(str(path), InputOptions()))


def test_a_damaged_page_of_parquet_is_one_error(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": [f"text {k}" for k in range(5000)]}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[100:600] = bytes(500)
    path.write_bytes(data)
    with pytest.raises(FlowgraphError, match=r"input: '.*a\.parquet' is damaged"):
        list(Reader(str(path), InputOptions()))


def test_a_compression_without_its_library_is_said(tmp_path, monkeypatch):
    import fsspec.utils

    monkeypatch.setattr(fsspec.utils, "infer_compression", lambda _: None)
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    with pytest.raises(FlowgraphError, match="Zstandard, which needs a library: pip install zstandard"):
        Reader(str(tmp_path / "a.txt.zst"), InputOptions())
