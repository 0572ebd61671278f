"""`setup --models`: fetch a configuration's models from the Hugging Face hub into its cache.

It is the only command that uses `HF_TOKEN`, for models that are gated or private. It runs no code
of the tree: it reads the configuration, built-in suites name their models, and files are stored
without being read. So the token is gone before anything is measured. Workers would not get it
(`processes.environ`), but measured code can read the environment of its parent processes.
"""

from collections.abc import Iterator, Mapping

from ci_bench.command_line.settings import Fetching
from ci_bench.commands.config_files import config_path, require_config
from ci_bench.commands.output import tell
from ci_bench.configuration.config import load_config
from ci_bench.errors import EngineMissing, ExitCode, ModelUnavailable
from ci_bench.records.config import Config
from ci_bench.suites.contract import HubModel, Suite
from ci_bench.suites.registry import BUILT_IN, find_suite, plugin_names

DESCRIPTIONS = ("*.json", "*.txt", "*.model")
"""Configurations, and what tokenizers consist of."""
WEIGHTS = "*.safetensors"


def fetch_models(settings: Fetching) -> int:
    """Fetch the models that the configuration names, each once.

    Raises `ModelUnavailable`, which lists all models that failed.
    """
    forms: dict[str, Mapping[str, object]] = {name: {"type": "object"} for name in plugin_names()}
    require_config(settings)
    models = dict.fromkeys(models_of(load_config(config_path(settings), more_suites=forms)))
    if not models:
        tell("no model of this configuration comes from the hub")
        return int(ExitCode.OK)
    faults = [
        fault
        for model in models
        if (fault := fetch(model, settings.environ.get("HF_TOKEN"))) is not None
    ]
    if faults:
        raise ModelUnavailable("\n".join(faults))
    tell("measure with HF_HUB_OFFLINE=1, and without the token")
    return int(ExitCode.OK)


def models_of(config: Config) -> Iterator[HubModel]:
    """Yield the models that the built-in suites of a configuration take from the hub.

    A plugin is not asked: that would run its code.
    """
    for entry in config.entries:
        suite = find_suite(entry.suite) if entry.suite in BUILT_IN else None
        if (
            suite is not None and type(suite).hub_models is not Suite.hub_models
        ):  # others are not even planned
            for case in suite.plan(entry.options):
                yield from suite.hub_models(case)


def fetch(model: HubModel, token: str | None) -> str | None:
    """Store a model's files in the cache; return the reason if that fails.

    Raises:
        EngineMissing: the hub's client is not installed.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
        )
    except ImportError as error:
        raise EngineMissing(
            "huggingface_hub is not installed; pip install 'ci-bench[engine]'"
        ) from error
    patterns = [*DESCRIPTIONS, *([WEIGHTS] if model.weights else [])]
    try:
        snapshot_download(model.path, revision=model.revision, token=token, allow_patterns=patterns)
    except GatedRepoError:
        whose = "of HF_TOKEN" if token else "whose token is given as HF_TOKEN"
        return (
            f"{model.path} is gated: its terms have to be accepted on its page by the account"
            f" {whose}"
        )
    except RepositoryNotFoundError:
        return (
            f"{model.path}: the hub has no such model, or"
            f" {'HF_TOKEN may not read it' if token else 'it wants HF_TOKEN'}"
        )
    except OfflineModeIsEnabled:
        return f"{model.path}: HF_HUB_OFFLINE is set; unset it for this command"
    except Exception as error:  # noqa: BLE001 - errors of its HTTP client, and any that a broken answer causes in its code
        return (
            f"{model.path}: {type(error).__name__}:"
            f" {_without(token, str(error)).strip().partition(chr(10))[0][:300]}"
        )
    tell(
        f"{model.path} ({model.revision or 'main'}){' with its weights' if model.weights else ''}"
        " is in the cache"
    )
    return None


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "***") if token else text
