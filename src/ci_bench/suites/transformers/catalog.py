"""Resolves the names of models in the configuration.

A name is a preset, a local folder, a hub id, or a configuration written inline. Everything that can
be wrong without asking the hub or importing transformers is found here, before anything runs.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ci_bench.errors import BadConfig
from ci_bench.records.spelling import nearest
from ci_bench.suites.transformers.options import TransformersModel, looks_local

PRESETS = ("bert", "gpt2", "t5", "llama", "vit", "wav2vec2", "whisper")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)
NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST_NAME = 60
OF_IMAGES, OF_TEXT = {"image_size", "num_channels", "patch_size"}, {"vocab_size", "text_config"}
"""Fields of configurations that show the kind of a model's inputs."""
_IMAGE_FAMILIES = """
beit bit chmv2 conditional_detr convnext convnextv2 cvt d_fine dab-detr data2vec-vision
deformable_detr deimv2 deit depth_anything depth_pro detr dinat dinov2 dinov2_with_registers
dinov3_convnext dinov3_vit donut-swin dpt efficientloftr efficientnet eomt eomt_dinov3 focalnet
glpn hgnet_v2 hiera ijepa levit lightglue lw_detr lw_detr_vit mask2former maskformer
maskformer-swin mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 oneformer pixio poolformer
pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4 pp_lcnet pp_lcnet_v3 pp_lcnet_v4
pp_ocrv5_mobile_det pp_ocrv5_server_det pp_ocrv6_medium_det pp_ocrv6_small_det
prompt_depth_anything pvt pvt_v2 regnet resnet rf_detr rf_detr_dinov2 rt_detr rt_detr_resnet
rt_detr_v2 sapiens2 segformer superglue superpoint swiftformer swin swin2sr swinv2
table-transformer textnet timesformer timm_backbone timm_wrapper tipsv2_dpt tipsv2_vision_model
upernet uvdoc_backbone videomae videomt videoprism_vision_model vit vit_msn vitdet
vitpose_backbone vivit vjepa2 yolos zoedepth
"""
IMAGE_FAMILIES = frozenset(_IMAGE_FAMILIES.split())
"""Families of transformers that read images or videos only.

Their configurations need not say so: those of convolutional networks often leave the size out.
"""


def resolve_models(raw: Any, place: str) -> tuple[TransformersModel, ...]:
    """Resolve every model of an entry's `model`: one name, one mapping, or a list of them.

    Raises:
        BadConfig: every fault, one on each line, each beginning with its field under `place`.
    """
    entries = raw if isinstance(raw, list | tuple) else [raw]
    faults, models = [], []
    for index, entry in enumerate(entries):
        where = f"{place}.model[{index}]" if isinstance(raw, list | tuple) else f"{place}.model"
        try:
            models.append(_resolve({"path": entry} if isinstance(entry, str) else entry, where))
        except BadConfig as error:
            faults.append(str(error))
    names = [model.name for model in models]
    faults += [
        f"{place}.model: {name!r} is listed twice; give one of them a `name`"
        for name in _repeated(names)
    ]
    if faults:
        raise BadConfig("\n".join(faults))
    return tuple(models)


def has_sequence(model: TransformersModel) -> bool:
    """Return true if a sequence length means something.

    This is assumed for models that only the hub knows.
    """
    config = (
        model.config if not model.stored or model.on_hub else {**read_stored(model), **model.config}
    )
    if config.get("model_type") in IMAGE_FAMILIES:
        return False
    return not OF_IMAGES.intersection(config) or bool(OF_TEXT.intersection(config))


def read_stored(model: TransformersModel) -> Mapping[str, Any]:
    """Read the configuration in a local model's folder."""
    return _read_folder(Path(model.path or "").expanduser(), "model")


@cache
def preset(name: str) -> Mapping[str, Any]:
    """Read the configuration of a preset."""
    text = (
        files("ci_bench.suites.transformers")
        .joinpath("presets", f"{name}.yml")
        .read_text(encoding="utf-8")
    )
    config: Mapping[str, Any] = yaml.safe_load(text)
    return config


def _resolve(entry: Mapping[str, Any], where: str) -> TransformersModel:
    path, config = entry.get("path"), entry.get("config", {})
    stored_options = {key: entry[key] for key in ("revision", "pretrained") if key in entry}
    if path is None or path in PRESETS:
        if stored_options:
            raise BadConfig(
                f"{where}.{next(iter(stored_options))}: only a folder or a hub id has this;"
                " leave it out, or set `path`"
            )
        complete = {**preset(path), **config} if path else dict(config)
        return TransformersModel(
            name=_name(entry, str(complete.get("model_type", ""))),
            path=path,
            config=_typed(complete, where),
        )
    if looks_local(path):
        _read_folder(
            Path(path).expanduser(),
            f"{where}.path" if "name" in entry or config or stored_options else where,
        )
        name = Path(path).expanduser().resolve().name
    elif HUB_ID.fullmatch(path):
        name = path.rpartition("/")[2]
    else:
        advice = (
            f"; the hub calls it {owner}/{path}"
            if (owner := _owner(path))
            else nearest(path, PRESETS)
        )
        raise BadConfig(
            f"{where}: unknown preset {path!r}{advice} (a hub id is owner/name, a folder starts"
            " with ./ or /)"
        )
    return TransformersModel(
        name=_name(entry, name), path=path, config=dict(config), stored=True, **stored_options
    )


_OWNERS = (
    ("google-bert", r"bert-(base|large)-.+"),
    ("openai-community", r"gpt2(-medium|-large|-xl)?|openai-gpt"),
    ("google-t5", r"t5-(small|base|large|3b|11b)"),
    ("distilbert", r"distilbert-.+|distilgpt2|distilroberta-base"),
    ("FacebookAI", r"(xlm-)?roberta-(base|large).*|xlm-.+"),
    ("albert", r"albert-.+"),
    ("xlnet", r"xlnet-.+"),
)
"""Owners of models that the hub once had without one."""


def _owner(path: str) -> str:
    return next((owner for owner, pattern in _OWNERS if re.fullmatch(pattern, path)), "")


def _typed(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Require that a complete configuration names its family."""
    if not isinstance(config.get("model_type"), str):
        raise BadConfig(
            f"{where}.config.model_type: missing; without a `path` the configuration names its"
            " family, such as bert"
        )
    return config


def _read_folder(folder: Path, where: str) -> Mapping[str, Any]:
    file = folder / "config.json"
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadConfig(
            f"{where}: {file} not found; give the folder that save_pretrained wrote"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfig(f"{where}: {file} cannot be read: {error}") from error
    if not isinstance(stored, dict) or not isinstance(stored.get("model_type"), str):
        raise BadConfig(
            f"{where}: {file} has no model_type, so it is not a configuration of transformers"
        )
    return stored


def _name(entry: Mapping[str, Any], default: str) -> str:
    """Return the name in the case's id."""
    return str(entry.get("name") or NOT_A_NAME.sub("-", default)[:LONGEST_NAME] or "model")


def _repeated(names: list[str]) -> Iterator[str]:
    return (name for name in dict.fromkeys(names) if names.count(name) > 1)
