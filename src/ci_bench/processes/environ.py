"""Return the workers' environment: the caller's without secrets or handles on the runner. Pure.

Code under test never sees a token. The names are those that GitHub's runner, cloud SDKs and package
tools use; a few kinds of secret are known by their form, whatever the name.
"""

import re
from collections.abc import Mapping

SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|AUTH|COOKIE|WEBHOOK|_KEYS?$|_PAT$|_DSN$",
    re.IGNORECASE,
)
RUNNER = re.compile(
    r"^(GITHUB_|ACTIONS_|RUNNER_|INPUT_|SSH_|GPG_|AWS_|AZURE_|GOOGLE_|DOCKER_|KUBE)", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"gh[pousr]_\w{20}|github_pat_\w{20}|\bhf_\w{20}|://[^/\s:@]*:[^/\s@]+@|PRIVATE KEY-----"
)
"""GitHub's and the Hugging Face hub's tokens, a password in an address, a key file."""
ALWAYS = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the caller's environment that a worker may see."""
    return {name: value for name, value in environ.items() if not _is_secret(name, value)} | ALWAYS


def _is_secret(name: str, value: str) -> bool:
    return bool(SECRET.search(name) or RUNNER.search(name) or SECRET_VALUE.search(value))
