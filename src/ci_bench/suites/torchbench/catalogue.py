"""Models of each source, by name. No torch here, and no import of benched code.

Names of the zoo are listed twice, here and in the module that builds the models; a test compares
them. Hugging Face's models have class, batch size and sequence length from the dynamo runner's
tables (``benchmarks/dynamo/huggingface.py`` and ``huggingface.yaml`` of pytorch). The batch size is
the largest that fitted a 40 GB GPU, divided. If the runner takes a configuration from the hub, its
differences from the class's default are given here, so nothing has to be downloaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.suites.torchbench.options import ModelSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One model: a class of transformers, rows per batch, tokens per row, and its settings."""

    cls: str
    batch: int
    tokens: int = 128
    config: Mapping[str, Any] = field(default_factory=dict)


def _list(cls: str, batch: int, tokens: int = 128, **config: Any) -> Listed:
    return Listed(cls=cls, batch=batch, tokens=tokens, config=config)


HUGGINGFACE: Mapping[str, Listed] = {
    "AlbertForMaskedLM": _list("AlbertForMaskedLM", 8 // 2, 512),
    "AllenaiLongformerBase": _list(
        "LongformerForMaskedLM",
        8 // 2,
        1024,
        max_position_embeddings=4098,
        type_vocab_size=1,
        vocab_size=50265,
        attention_window=512,
    ),
    "BartForCausalLM": _list("BartForCausalLM", 8 // 2, 1024),
    "BertForMaskedLM": _list("BertForMaskedLM", 32 // 2, 512),
    "BlenderbotForCausalLM": _list("BlenderbotForCausalLM", 32 // 8),
    "DebertaV2ForMaskedLM": _list("DebertaV2ForMaskedLM", 8 // 4, 512),
    "DistilBertForMaskedLM": _list("DistilBertForMaskedLM", 256 // 2),
    "DistillGPT2": _list("GPT2LMHeadModel", 32 // 2, 512, n_layer=6),
    "ElectraForCausalLM": _list("ElectraForCausalLM", 64 // 2, 512),
    "GPT2ForSequenceClassification": _list(
        "GPT2ForSequenceClassification", 8 // 2, 1024, pad_token_id=0
    ),
    "GoogleFnet": _list("FNetForMaskedLM", 32 // 2, 512),
    "LayoutLMForMaskedLM": _list("LayoutLMForMaskedLM", 32 // 2, 512),
    "M2M100ForConditionalGeneration": _list("M2M100ForConditionalGeneration", 64 // 4),
    "MBartForCausalLM": _list("MBartForCausalLM", 8 // 2, 1024),
    "MT5ForConditionalGeneration": _list("MT5ForConditionalGeneration", 32 // 2),
    "MegatronBertForCausalLM": _list("MegatronBertForCausalLM", 16 // 4, 512),
    "MobileBertForMaskedLM": _list("MobileBertForMaskedLM", 256 // 2),
    "OPTForCausalLM": _list("OPTForCausalLM", 4 // 2, 2048),
    "PLBartForCausalLM": _list("PLBartForCausalLM", 16 // 2, 1024),
    "PegasusForCausalLM": _list("PegasusForCausalLM", 128 // 4),
    "RobertaForCausalLM": _list("RobertaForCausalLM", 32 // 2, 512, pad_token_id=0),
    "T5ForConditionalGeneration": _list("T5ForConditionalGeneration", 8 // 2, 1024),
    "T5Small": _list("T5ForConditionalGeneration", 8 // 2, 1024),
    "TrOCRForCausalLM": _list("TrOCRForCausalLM", 64 // 2, 256),
    "XGLMForCausalLM": _list("XGLMForCausalLM", 32 // 4),
    "XLNetLMHeadModel": _list("XLNetLMHeadModel", 16 // 2, 512),
    "YituTechConvBert": _list("ConvBertForMaskedLM", 32 // 2, 512),
}
"""Models by the runner's own names.

Models that it skips everywhere are left out, and those whose weights need a licence.
"""


ZOO = (
    "actor_critic",
    "autoencoder",
    "cnn",
    "decoder",
    "diffusion",
    "encoder",
    "gnn",
    "lstm",
    "mlp",
    "recommender",
    "resnet",
    "unet",
    "vit",
)

TIMM = (
    "adv_inception_v3",
    "beit_base_patch16_224",
    "convnextv2_nano.fcmae_ft_in22k_in1k",
    "deit_base_distilled_patch16_224",
    "deit_tiny_patch16_224.fb_in1k",
    "dm_nfnet_f0",
    "ghostnet_100",
    "inception_v3",
    "mobilenetv2_100",
    "mobilenetv3_large_100",
    "mobilevit_s",
    "nfnet_l0",
    "repvgg_a2",
    "swin_base_patch4_window7_224",
    "tf_efficientnet_b0",
    "visformer_small",
    "vit_base_patch14_dinov2.lvd142m",
    "vit_base_patch16_siglip_256",
)
"""The runner's list; any other name that timm knows can be given as well."""

PACKAGE = "torchbenchmark"
FOLDERS = ("models", "canary_models")


def names(
    source: ModelSource, path: str | None, *, canary: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the models of a source, sorted.

    Of a checkout's canary models it has only those in `canary`.

    Raises:
        BadConfig: `path` is missing, or is not a checkout.
    """
    match source:
        case ModelSource.ZOO:
            return ZOO
        case ModelSource.HUGGINGFACE:
            return tuple(sorted(HUGGINGFACE))
        case ModelSource.TIMM:
            return TIMM
        case ModelSource.OWN:
            return ()
        case ModelSource.TORCHBENCH:
            return _checkout(path, canary)


def _checkout(path: str | None, canary: frozenset[str]) -> tuple[str, ...]:
    if path is None:
        message = (
            "suites.torchbench.path: source torchbench needs the folder of a TorchBench checkout"
        )
        raise BadConfig(message)
    root = Path(path).expanduser() / PACKAGE
    models, kept_back = (_packages(root / folder) for folder in FOLDERS)
    if not models:
        message = (
            f"suites.torchbench.path: {path} has no models under {PACKAGE}/models; give the root of"
            " a TorchBench checkout"
        )
        raise BadConfig(message)
    return tuple(sorted(models | (kept_back & canary)))


def _packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")} if folder.is_dir() else set()
