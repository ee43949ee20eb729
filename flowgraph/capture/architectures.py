"""What differs between model families, as a table keyed by block class; all else is common code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowgraph.capture.layout import Adapter, Layout, NoAttention, resolve

if TYPE_CHECKING:
    from torch import Tensor, nn

# --- layouts ----------------------------------------------------------------------------------------------

_BERT = Layout(
    kind="post-norm",
    attention="attention.self",
    projection="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    feed_forward=("intermediate", "output.dense"),
    output_norm="output.LayerNorm",
    cross_attention="crossattention.self",
    cross_projection="crossattention.output.dense",
)
_DISTILBERT = Layout(
    kind="post-norm",
    attention="attention",
    projection="attention.out_lin",
    attention_norm="sa_layer_norm",
    feed_forward=("ffn",),
    output_norm="output_layer_norm",
)
_ALBERT = Layout(
    kind="post-norm",
    attention="attention",
    projection="attention.dense",
    attention_norm="attention.LayerNorm",
    feed_forward=("ffn", "activation", "ffn_output"),
    output_norm="full_layer_layer_norm",
)
_MODERNBERT = Layout(
    kind="pre-norm", attention="attn", projection="attn.Wo", feed_forward=("mlp_norm", "mlp")
)
_GPT2 = Layout(
    kind="pre-norm",
    attention="attn",
    projection="attn.c_proj",
    feed_forward=("ln_2", "mlp"),
    cross_attention="crossattention",
    cross_projection="crossattention.c_proj",
)
_LLAMA = Layout(
    kind="pre-norm",
    attention="self_attn",
    projection="self_attn.o_proj",
    feed_forward=("post_attention_layernorm", "mlp"),
)
# the same name, another place: this post_attention_layernorm is a norm on the attention output
_GEMMA2 = replace(
    _LLAMA,
    branch_norm="post_attention_layernorm",
    feed_forward=("pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm"),
)
_OLMO2 = replace(_GEMMA2, feed_forward=("mlp", "post_feedforward_layernorm"))
_GRANITE = replace(_LLAMA, branch_scale="residual_multiplier", output_scale="residual_multiplier")
_GLM4 = replace(
    _LLAMA,
    branch_norm="post_self_attn_layernorm",
    feed_forward=("post_attention_layernorm", "mlp", "post_mlp_layernorm"),
)
_GRANITE_MOE = replace(_GRANITE, feed_forward=("post_attention_layernorm", "block_sparse_moe"))
_COHERE = replace(_LLAMA, kind="parallel", feed_forward=("input_layernorm", "mlp"))
_PHI = replace(_COHERE, projection="self_attn.dense")
_T5 = Layout(
    kind="pre-norm",
    attention="layer.0.SelfAttention",
    projection="layer.0.SelfAttention.o",
    feed_forward=("layer.-1.layer_norm", "layer.-1.DenseReluDense"),
    cross_attention="layer.1.EncDecAttention",
    cross_projection="layer.1.EncDecAttention.o",
)
_BART = Layout(
    kind="post-norm",
    attention="self_attn",
    projection="self_attn.out_proj",
    attention_norm="self_attn_layer_norm",
    feed_forward=("fc1", "activation_fn", "fc2"),
    output_norm="final_layer_norm",
    cross_attention="encoder_attn",
    cross_projection="encoder_attn.out_proj",
)
_MBART = replace(
    _BART,
    kind="pre-norm",
    attention_norm=None,
    output_norm=None,
    feed_forward=("final_layer_norm", "fc1", "activation_fn", "fc2"),
)
_VIT = Layout(
    kind="pre-norm",
    attention="attention",
    projection="attention.o_proj",
    feed_forward=("layernorm_after", "mlp"),
)
_DINOV2 = replace(
    _VIT,
    feed_forward=("norm2", "mlp"),
    branch_scale="layer_scale1.lambda1",
    output_scale="layer_scale2.lambda1",
)
_CLIP = Layout(
    kind="pre-norm",
    attention="self_attn",
    projection="self_attn.out_proj",
    feed_forward=("layer_norm2", "mlp"),
)


# --- layouts that a block's configuration decides -----------------------------------------------------------


def _gpt_neox(block: Any) -> Layout:
    return Layout(
        kind="parallel" if block.use_parallel_residual else "pre-norm",
        attention="attention",
        projection="attention.dense",
        feed_forward=("post_attention_layernorm", "mlp"),
    )


def _opt(block: Any) -> Layout:
    return _MBART if block.do_layer_norm_before else _BART


def _falcon(block: Any) -> Layout:
    config = block.config
    if config.new_decoder_architecture and config.num_ln_in_parallel_attn == 2:
        kind, norm = "parallel", "ln_mlp"
    elif config.new_decoder_architecture or config.parallel_attn:
        kind, norm = "parallel", "input_layernorm"
    else:
        kind, norm = "pre-norm", "post_attention_layernorm"
    return Layout(
        kind=kind,  # type: ignore[arg-type]
        attention="self_attention",
        projection="self_attention.dense",
        feed_forward=(norm, "mlp"),
        adapter=Adapter("self_attention.query_key_value", _falcon_values, in_mask="alibi"),
    )


def _bloom(block: Any) -> Layout:
    layout = Layout(
        kind="pre-norm",
        attention="self_attention",
        projection="self_attention.dense",
        feed_forward=(
            "post_attention_layernorm",
            "mlp.dense_h_to_4h",
            "mlp.gelu_impl",
            "mlp.dense_4h_to_h",
        ),
        adapter=Adapter("self_attention.query_key_value", _bloom_values),
    )
    if not block.apply_residual_connection_post_layernorm:
        return layout
    why = "this BLOOM adds to the normalised stream (apply_residual_connection_post_layernorm)"
    return replace(layout, missing=dict.fromkeys(("stream", "block_output", "rerun"), why))


def _bloom_values(attention: Any, fused: Tensor) -> Tensor:
    return attention._reshape(fused)[2]


def _falcon_values(attention: Any, fused: Tensor) -> Tensor:
    return attention._split_heads(fused)[2].transpose(1, 2)


def _plain_values(attention: Any, values: Tensor) -> Tensor:
    """(B, T, H d) -> (B, H, T, d)."""
    batch, tokens, _ = values.shape
    return values.view(batch, tokens, attention.num_attention_heads, -1).transpose(1, 2)


_DEBERTA = replace(
    _BERT,
    cross_attention=None,
    cross_projection=None,
    adapter=Adapter("attention.self.value_proj", _plain_values),
)
_MPNET = Layout(
    kind="post-norm",
    attention="attention.attn",
    projection="attention.attn.o",
    attention_norm="attention.LayerNorm",
    feed_forward=("intermediate", "output.dense"),
    output_norm="output.LayerNorm",
    adapter=Adapter("attention.attn.v", _plain_values),
)


def _bamba(block: Any) -> Layout | NoAttention:
    if getattr(block, "self_attn", None) is None:
        return NoAttention("a state-space layer")
    return replace(_LLAMA, feed_forward=("pre_ff_layernorm", "feed_forward"))


def _qwen3_next(block: Any) -> Layout | NoAttention:
    if getattr(block, "self_attn", None) is None:
        return NoAttention("linear attention")
    why = "a gate stands between its attention and the output projection"
    return replace(_LLAMA, missing={"output_weight": why})


_JAMBA = replace(_LLAMA, feed_forward=("pre_ff_layernorm", "feed_forward"))

# --- the table ----------------------------------------------------------------------------------------------

Entry = Layout | NoAttention | Callable[[Any], Layout | NoAttention]

BLOCKS: dict[str, Entry] = {
    # encoders
    "albert.AlbertLayer": _ALBERT,
    "deberta_v2.DebertaV2Layer": _DEBERTA,
    "distilbert.TransformerBlock": _DISTILBERT,
    "modernbert.ModernBertEncoderLayer": _MODERNBERT,
    "mpnet.MPNetLayer": _MPNET,
    **dict.fromkeys(
        (
            "bert.BertLayer",
            "bert_generation.BertGenerationLayer",
            "camembert.CamembertLayer",
            "data2vec.Data2VecTextLayer",
            "electra.ElectraLayer",
            "ernie.ErnieLayer",
            "layoutlm.LayoutLMLayer",
            "roberta.RobertaLayer",
            "roc_bert.RoCBertLayer",
            "splinter.SplinterLayer",
            "xlm_roberta.XLMRobertaLayer",
        ),
        _BERT,
    ),
    # decoders
    "bloom.BloomBlock": _bloom,
    "falcon.FalconDecoderLayer": _falcon,
    "glm4.Glm4DecoderLayer": _GLM4,
    "gpt2.GPT2Block": _GPT2,
    "gpt_neox.GPTNeoXLayer": _gpt_neox,
    "granite.GraniteDecoderLayer": _GRANITE,
    "granitemoe.GraniteMoeDecoderLayer": _GRANITE_MOE,
    "opt.OPTDecoderLayer": _opt,
    "phi.PhiDecoderLayer": _PHI,
    **dict.fromkeys(
        (
            "arcee.ArceeDecoderLayer",
            "cwm.CwmDecoderLayer",
            "deepseek_v2.DeepseekV2DecoderLayer",
            "deepseek_v3.DeepseekV3DecoderLayer",
            "ernie4_5.Ernie4_5DecoderLayer",
            "eurobert.EuroBertDecoderLayer",
            "gemma.GemmaDecoderLayer",
            "glm.GlmDecoderLayer",
            "glm4_moe.Glm4MoeDecoderLayer",
            "gpt_oss.GptOssDecoderLayer",
            "helium.HeliumDecoderLayer",
            "hunyuan_v1_dense.HunYuanDenseV1DecoderLayer",
            "llama.LlamaDecoderLayer",
            "minimax_m2.MiniMaxM2DecoderLayer",
            "ministral.MinistralDecoderLayer",
            "ministral3.Ministral3DecoderLayer",
            "mistral.MistralDecoderLayer",
            "mixtral.MixtralDecoderLayer",
            "nanochat.NanoChatDecoderLayer",
            "nemotron.NemotronDecoderLayer",
            "olmo.OlmoDecoderLayer",
            "olmoe.OlmoeDecoderLayer",
            "phi3.Phi3DecoderLayer",
            "phimoe.PhimoeDecoderLayer",
            "qwen2.Qwen2DecoderLayer",
            "qwen2_moe.Qwen2MoeDecoderLayer",
            "qwen3.Qwen3DecoderLayer",
            "qwen3_moe.Qwen3MoeDecoderLayer",
            "seed_oss.SeedOssDecoderLayer",
            "smollm3.SmolLM3DecoderLayer",
            "stablelm.StableLmDecoderLayer",
            "starcoder2.Starcoder2DecoderLayer",
        ),
        _LLAMA,
    ),
    **dict.fromkeys(
        (
            "gemma2.Gemma2DecoderLayer",
            "gemma3.Gemma3DecoderLayer",
        ),
        _GEMMA2,
    ),
    **dict.fromkeys(
        (
            "exaone4.Exaone4DecoderLayer",
            "flex_olmo.FlexOlmoDecoderLayer",
            "olmo2.Olmo2DecoderLayer",
            "olmo3.Olmo3DecoderLayer",
        ),
        _OLMO2,
    ),
    **dict.fromkeys(
        (
            "cohere.CohereDecoderLayer",
            "cohere2.Cohere2DecoderLayer",
        ),
        _COHERE,
    ),
    # encoder-decoders
    **dict.fromkeys(
        (
            "bart.BartDecoderLayer",
            "bart.BartEncoderLayer",
            "blenderbot_small.BlenderbotSmallDecoderLayer",
            "blenderbot_small.BlenderbotSmallEncoderLayer",
            "marian.MarianDecoderLayer",
            "marian.MarianEncoderLayer",
            "plbart.PLBartDecoderLayer",
            "plbart.PLBartEncoderLayer",
        ),
        _BART,
    ),
    **dict.fromkeys(
        (
            "blenderbot.BlenderbotDecoderLayer",
            "blenderbot.BlenderbotEncoderLayer",
            "m2m_100.M2M100DecoderLayer",
            "m2m_100.M2M100EncoderLayer",
            "mbart.MBartDecoderLayer",
            "mbart.MBartEncoderLayer",
            "pegasus.PegasusDecoderLayer",
            "pegasus.PegasusEncoderLayer",
            "whisper.WhisperDecoderLayer",
            "whisper.WhisperEncoderLayer",
        ),
        _MBART,
    ),
    **dict.fromkeys(
        (
            "mt5.MT5Block",
            "t5.T5Block",
            "umt5.UMT5Block",
        ),
        _T5,
    ),
    # vision
    **dict.fromkeys(
        (
            "deit.DeiTLayer",
            "ijepa.IJepaLayer",
            "vit.ViTLayer",
            "vit_msn.ViTMSNLayer",
        ),
        _VIT,
    ),
    **dict.fromkeys(
        (
            "dinov2.Dinov2Layer",
            "dinov2_with_registers.Dinov2WithRegistersLayer",
            "dinov3_vit.DINOv3ViTLayer",
        ),
        _DINOV2,
    ),
    **dict.fromkeys(
        (
            "altclip.AltCLIPEncoderLayer",
            "chinese_clip.ChineseCLIPVisionLayer",
            "clip.CLIPEncoderLayer",
            "metaclip_2.MetaClip2EncoderLayer",
            "siglip.SiglipEncoderLayer",
        ),
        _CLIP,
    ),
    # attention and other mixers in turn
    "bamba.BambaDecoderLayer": _bamba,
    "jamba.JambaAttentionDecoderLayer": _JAMBA,
    "jamba.JambaMambaDecoderLayer": NoAttention("a state-space layer"),
    "qwen3_next.Qwen3NextDecoderLayer": _qwen3_next,
}
"""``family.Class`` of a block -> its layout, or a function of the block where its configuration decides."""

REFUSED: dict[str, str] = {
    "swin": "it attends inside windows of an image that shift and merge, and no graph of whole layers shows "
    "that",
    "swinv2": "it attends inside windows of an image that shift and merge, and no graph of whole layers "
    "shows that",
    "longformer": "its sparse attention comes in bands of its own shape",
    "big_bird": "its sparse attention comes in blocks of its own shape",
    "reformer": "its attention is hashed into buckets",
    "funnel": "its layers pool tokens away",
    "perceiver": "its tokens are read by latents that are no tokens",
    "xlnet": "it reads two streams at once",
}
"""Model type -> why a graph of its attention would not be true."""


def block_key(cls: type) -> str | None:
    """``bert.BertLayer`` for a class of ``transformers.models.bert``; None for a class from elsewhere."""
    parts = cls.__module__.split(".")
    inside = parts[:2] == ["transformers", "models"] and len(parts) > 2
    return f"{parts[2]}.{cls.__name__}" if inside else None


def entry_of(module: nn.Module) -> Layout | NoAttention | None:
    """The layout of ``module`` if it, or a class it derives from, is a block of the table."""
    for cls in type(module).__mro__:
        entry = BLOCKS.get(block_key(cls) or "")
        if entry is not None:
            found = entry(module) if callable(entry) else entry
            return _without_absent_cross(module, found) if isinstance(found, Layout) else found
    return None


def _without_absent_cross(block: nn.Module, layout: Layout) -> Layout:
    if resolve(block, layout.cross_projection) is None:
        return replace(layout, cross_attention=None, cross_projection=None)
    return layout


def find_blocks(model: nn.Module) -> Iterator[tuple[str, nn.Module, Layout | NoAttention]]:
    """Path, module and entry of every block of ``model``, in order."""
    for name, module in model.named_modules():
        entry = entry_of(module)
        if entry is not None:
            yield name, module, entry
