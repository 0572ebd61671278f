"""Which models each source has, by name. No torch here, and no import of benched code.

Names of the zoo are listed twice, here and where the models are built; a test compares them.
"""

from pathlib import Path

from ci_bench.errors import BadConfig
from ci_bench.suites.torchbench.huggingface_table import HUGGINGFACE
from ci_bench.suites.torchbench.options import Source

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


def names(source: Source, path: str | None, *, canary: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The models of a source, sorted. Of a checkout's canary models only those in `canary`.

    Raises:
        BadConfig: `path` is missing, or is no checkout.
    """
    match source:
        case Source.ZOO:
            return ZOO
        case Source.HUGGINGFACE:
            return tuple(sorted(HUGGINGFACE))
        case Source.TIMM:
            return TIMM
        case Source.OWN:
            return ()
        case Source.TORCHBENCH:
            return _checkout(path, canary)


def _checkout(path: str | None, canary: frozenset[str]) -> tuple[str, ...]:
    if path is None:
        message = "suites.torchbench.path: source torchbench needs the folder of a TorchBench checkout"
        raise BadConfig(message)
    root = Path(path).expanduser() / PACKAGE
    models, kept_back = (_packages(root / folder) for folder in FOLDERS)
    if not models:
        message = f"suites.torchbench.path: {path} has no models under {PACKAGE}/models; give the root of a TorchBench checkout"
        raise BadConfig(message)
    return tuple(sorted(models | (kept_back & canary)))


def _packages(folder: Path) -> set[str]:
    return {found.parent.name for found in folder.glob("*/__init__.py")} if folder.is_dir() else set()
