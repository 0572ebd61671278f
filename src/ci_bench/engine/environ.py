"""The environment that workers get: the caller's, without anything that could be a secret or a handle on the runner. Pure.

Code under test never sees a token. The names are those GitHub's runner, cloud SDKs and package tools use.
"""

import re
from collections.abc import Mapping

SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_KEY|AUTH|COOKIE|SESSION_KEY", re.IGNORECASE)
RUNNER = re.compile(r"^(GITHUB_|ACTIONS_|RUNNER_|INPUT_|SSH_|GPG_|AWS_|AZURE_|GOOGLE_|DOCKER_|KUBE)", re.IGNORECASE)
ALWAYS = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the caller's environment a worker may see."""
    kept = {name: value for name, value in environ.items() if not SECRET.search(name) and not RUNNER.search(name)}
    kept.pop("TOKENIZERS_PARALLELISM", None)
    return {**kept, **ALWAYS}
