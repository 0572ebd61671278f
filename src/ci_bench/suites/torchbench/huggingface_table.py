"""The runner's Hugging Face models: class, batch size and sequence length of each. No torch here.

Facts from the dynamo runner's tables (``benchmarks/dynamo/huggingface.py`` and ``huggingface.yaml`` of pytorch): the batch
size is the largest that fitted a 40 GB GPU, divided. Where the runner takes a configuration from the hub, its
differences from the class's default are given here, so that nothing has to be downloaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One model: a class of transformers, rows per batch, tokens per row, and what its configuration sets apart."""

    cls: str
    batch: int
    tokens: int = 128
    config: Mapping[str, Any] = field(default_factory=dict)


def _listed(cls: str, batch: int, tokens: int = 128, **config: Any) -> Listed:
    return Listed(cls=cls, batch=batch, tokens=tokens, config=config)


HUGGINGFACE: Mapping[str, Listed] = {
    "AlbertForMaskedLM": _listed("AlbertForMaskedLM", 8 // 2, 512),
    "AllenaiLongformerBase": _listed(
        "LongformerForMaskedLM",
        8 // 2,
        1024,
        max_position_embeddings=4098,
        type_vocab_size=1,
        vocab_size=50265,
        attention_window=512,
    ),
    "BartForCausalLM": _listed("BartForCausalLM", 8 // 2, 1024),
    "BertForMaskedLM": _listed("BertForMaskedLM", 32 // 2, 512),
    "BlenderbotForCausalLM": _listed("BlenderbotForCausalLM", 32 // 8),
    "DebertaV2ForMaskedLM": _listed("DebertaV2ForMaskedLM", 8 // 4, 512),
    "DistilBertForMaskedLM": _listed("DistilBertForMaskedLM", 256 // 2),
    "DistillGPT2": _listed("GPT2LMHeadModel", 32 // 2, 512, n_layer=6),
    "ElectraForCausalLM": _listed("ElectraForCausalLM", 64 // 2, 512),
    "GPT2ForSequenceClassification": _listed("GPT2ForSequenceClassification", 8 // 2, 1024, pad_token_id=0),
    "GoogleFnet": _listed("FNetForMaskedLM", 32 // 2, 512),
    "LayoutLMForMaskedLM": _listed("LayoutLMForMaskedLM", 32 // 2, 512),
    "M2M100ForConditionalGeneration": _listed("M2M100ForConditionalGeneration", 64 // 4),
    "MBartForCausalLM": _listed("MBartForCausalLM", 8 // 2, 1024),
    "MT5ForConditionalGeneration": _listed("MT5ForConditionalGeneration", 32 // 2),
    "MegatronBertForCausalLM": _listed("MegatronBertForCausalLM", 16 // 4, 512),
    "MobileBertForMaskedLM": _listed("MobileBertForMaskedLM", 256 // 2),
    "OPTForCausalLM": _listed("OPTForCausalLM", 4 // 2, 2048),
    "PLBartForCausalLM": _listed("PLBartForCausalLM", 16 // 2, 1024),
    "PegasusForCausalLM": _listed("PegasusForCausalLM", 128 // 4),
    "RobertaForCausalLM": _listed("RobertaForCausalLM", 32 // 2, 512, pad_token_id=0),
    "T5ForConditionalGeneration": _listed("T5ForConditionalGeneration", 8 // 2, 1024),
    "T5Small": _listed("T5ForConditionalGeneration", 8 // 2, 1024),
    "TrOCRForCausalLM": _listed("TrOCRForCausalLM", 64 // 2, 256),
    "XGLMForCausalLM": _listed("XGLMForCausalLM", 32 // 4),
    "XLNetLMHeadModel": _listed("XLNetLMHeadModel", 16 // 2, 512),
    "YituTechConvBert": _listed("ConvBertForMaskedLM", 32 // 2, 512),
}
"""By the runner's own names. What it skips everywhere is not here, nor its models that need weights behind a licence."""
