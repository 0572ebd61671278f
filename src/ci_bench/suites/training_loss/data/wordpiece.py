"""Builds the embedded tokenizer: a cased WordPiece vocabulary like BERT's, and two documents.

Owns the vocabulary and the JSON documents as values, no files. The documents follow the format of
the tokenizers library
(https://huggingface.co/docs/tokenizers/api/models#tokenizers.models.WordPiece), written without it
so that the bytes don't depend on its version.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PUNCTUATION = (
    string.punctuation + "\u2018\u2019\u201c\u201d\u2013\u2014\u2026"
)  # quotes, dashes, ellipsis
# BertPreTokenizer splits at punctuation only, so pound, euro and degree signs stay inside words
# such as "20°C".
WORD_CHARACTERS = string.ascii_letters + string.digits + "\u00a3\u20ac\u00b0"
ENDING_LENGTHS = (2, 3, 4)
ENDING_COUNT = 200
MODEL_MAX_LENGTH = 128


def build_vocabulary(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the tokens in id order.

    They are special tokens, characters, frequent word endings, and the words of `texts`.
    """
    words = Counter(word for text in texts for word in re.findall(r"[A-Za-z0-9]+", text))
    characters = [
        *PUNCTUATION,
        *WORD_CHARACTERS,
        *(f"##{character}" for character in WORD_CHARACTERS),
    ]
    tokens = [*SPECIAL_TOKENS, *characters, *_frequent_endings(words), *_by_count(words)]
    return tuple(dict.fromkeys(tokens))


def _frequent_endings(words: Iterable[str]) -> list[str]:
    """Return `##` pieces for the endings that most distinct words share."""
    endings = Counter(
        word[-length:] for word in words for length in ENDING_LENGTHS if len(word) > length
    )
    return [f"##{ending}" for ending in _by_count(endings)[:ENDING_COUNT]]


def _by_count(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda token: (-counts[token], token))


def tokenizer_document(vocabulary: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of tokenizer.json."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(token, ids[token]) for token in SPECIAL_TOKENS],
        "normalizer": _normalizer(),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _post_processor(ids),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": _model(ids),
    }


def tokenizer_config_document() -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": True,
        "model_max_length": MODEL_MAX_LENGTH,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
    }


def _normalizer() -> dict[str, Any]:
    # bert-base-cased keeps accents; here they are dropped, so "café" needs no letter outside the
    # vocabulary.
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": True,
        "lowercase": False,
    }


def _added_token(token: str, token_id: int) -> dict[str, Any]:
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {"id": token_id, "content": token, **flags}


def _post_processor(ids: dict[str, int]) -> dict[str, Any]:
    single = [_special("[CLS]", 0), _sequence("A", 0), _special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, _sequence("B", 1), _special("[SEP]", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]}
            for token in ("[CLS]", "[SEP]")
        },
    }


def _special(token: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _sequence(name: str, type_id: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}


def _model(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": ids,
    }
