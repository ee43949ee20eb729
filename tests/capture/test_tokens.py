"""Readable tokens, words, special tokens: word pieces, byte-level and sentence pieces."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from flowgraph import attribute
from flowgraph.capture.run import trace
from flowgraph.capture.tokens import readable_token, special_ids, tokens_from_ids
from tests.models import tiny, word_tokenizer


def byte_level():
    """Byte-level BPE without merges but a few: every byte is a piece."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": 0, **{piece: k + 1 for k, piece in enumerate(alphabet)}}
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ã", "¡"), ("S", "e"), ("Se", "Ã¡"), ("SeÃ¡", "n")]
    for one, two in merges:
        vocabulary[one + two] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", unk_token="<|end|>")


def sentence_pieces():
    """Pieces with ▁ for a space and single bytes where nothing else fits; no split before the model."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += ["▁", "▁the", "▁cat", "s", "▁sat", "c", "a", "t"]
    vocabulary = [(piece, -float(k % 7)) for k, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    from tokenizers import normalizers

    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    wrapped.add_special_tokens({"additional_special_tokens": [AddedToken("<s>", special=True)]})
    return wrapped


def tokens_of(tokenizer, text):
    encoding = tokenizer(text)
    return tokens_from_ids(encoding["input_ids"], tokenizer, encoding.word_ids(0))


def test_byte_pieces_that_are_whole_characters_are_decoded():
    tokens = tokens_of(byte_level(), "Seán the x")
    assert tokens.raw == ("SeÃ¡n", "Ġthe", "Ġ", "x")
    assert tokens.readable == ("Seán", "the", "␣", "x")
    assert tokens.word_ids == (0, 1, 2, 2)


def test_byte_pieces_that_are_part_of_a_character_show_their_bytes():
    tokens = tokens_of(byte_level(), "💩")
    assert tokens.readable == ("\\xf0", "\\x9f", "\\x92", "\\xa9")
    assert tokens.raw == ("ð", "Ł", "Ĵ", "©")


def test_line_breaks_and_tabs_are_visible():
    assert tokens_of(byte_level(), "\n\t").readable == ("\\n", "\\t")


def test_a_replacement_character_in_the_text_is_itself():
    assert readable_token("ï¿½", True) == "\ufffd"


def test_sentence_pieces_and_their_words():
    tokens = tokens_of(sentence_pieces(), "the cats sat")
    assert tokens.raw == ("▁the", "▁cat", "s", "▁sat")
    assert tokens.readable == ("the", "cat", "s", "sat")
    # the tokenizer itself calls the whole text one word
    assert tokens.word_ids == (0, 1, 1, 2)


def test_sentence_pieces_fall_back_to_bytes():
    tokens = tokens_of(sentence_pieces(), "the é")
    assert tokens.raw[-2:] == ("<0xC3>", "<0xA9>")
    assert tokens.readable[-2:] == ("<0xC3>", "<0xA9>")
    assert tokens.word_ids[-3:] == (1, 1, 1)


@pytest.mark.parametrize(
    ("raw", "readable"),
    [("##ing", "ing"), ("##", "##"), ("#", "#"), ("low</w>", "low"), ("▁", "␣"), ("a", "a")],
)
def test_marks_of_word_pieces(raw, readable):
    assert readable_token(raw, False) == readable


def test_special_tokens_are_those_that_frame_a_text():
    tokenizer = word_tokenizer()
    names = tokenizer.convert_ids_to_tokens(sorted(special_ids(tokenizer)))
    assert names == ["[PAD]", "[CLS]", "[SEP]"]
    # GPT-2's unknown token is its end token, which frames
    assert special_ids(byte_level()) == {0}


def test_an_id_without_a_piece_is_shown_as_itself():
    assert tokens_from_ids([5, 77], word_tokenizer()).readable == ("the", "77")


def test_no_tokenizer_gives_ids_as_text():
    tokens = tokens_from_ids([5, 7], None)
    assert tokens.readable == tokens.raw == ("5", "7")
    assert tokens.ids == (5, 7)
    assert tokens.special is tokens.word_ids is None


def test_trace_of_a_decoder_with_byte_level_tokens():
    model, _ = tiny("gpt2", vocab_size=300)
    result = trace(model, byte_level(), "the Seán")
    assert result.tokens == ("t", "he", "␣", "Seán")
    assert result.raw_tokens == ("t", "he", "Ġ", "SeÃ¡n")


@pytest.mark.parametrize("word", ["Zoán", "💩", "ñandú"])
def test_words_split_inside_a_character_are_spelled_whole(word):
    tokenizer = byte_level()
    model = tiny("gpt2", vocab_size=len(tokenizer))[0]
    attribution = attribute(model, tokenizer, f"the {word} the")
    assert attribution.words().tokens == ("the", word, "the")
    found = attribute(model, tokenizer, f"the {word} the", targets=word)
    count = len(tokenizer(f" {word}")["input_ids"])
    assert len(found.target_tokens) == count > 2
