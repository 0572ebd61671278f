"""What a worker may see of the caller's environment."""

import pytest

from ci_bench.processes.environ import ALWAYS, worker_environment

SECRET = (
    "GITHUB_TOKEN", "GH_TOKEN", "GITHUB_WORKSPACE", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY", "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_RUNTIME_URL", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_CACHE_URL", "RUNNER_TEMP", "INPUT_GITHUB-TOKEN", "INPUT_ANYTHING",
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AZURE_CLIENT_ID",
    "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY", "OPENAI_APIKEY", "OPENAI_KEY", "NPM_CONFIG__AUTH", "TWINE_PASSWORD", "PGPASSWORD",
    "MYSQL_PASSWD", "SIGNING_KEY", "GPG_PASSPHRASE", "MY_PASSPHRASE", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "DOCKER_HOST", "DOCKER_AUTH_CONFIG",
    "KUBECONFIG", "SESSION_COOKIE", "client_secret", "ORG_PAT", "SENTRY_DSN", "SLACK_WEBHOOK_URL", "DEPLOY_PRIVATE_PEM",
)  # fmt: skip
HARMLESS = (
    "PATH", "HOME", "LANG", "TMPDIR", "USER", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "XDG_CACHE_HOME", "CXX", "CI",
    "CI_BENCH_IMAGE_DIGEST", "HTTPS_PROXY", "KEYBOARD", "MONKEY",
)  # fmt: skip
SECRET_VALUES = (
    "ghp_" + "a" * 36,
    "ghs_" + "A1" * 18,
    "github_pat_" + "a" * 30,
    "hf_" + "x" * 34,
    "https://user:hunter2@example.com/simple",
    "https://:hunter2@example.com/simple",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
)
HARMLESS_VALUES = (
    "https://example.com:8080/simple",
    "hf_transfer",
    "ghp",
    "/a/b:/c/d@2",
    "user@example.com:22",
    "",
)


@pytest.mark.parametrize("name", SECRET)
def test_secrets_and_handles_on_the_runner_are_dropped(name: str) -> None:
    assert name not in worker_environment({name: "x"})


@pytest.mark.parametrize("name", HARMLESS)
def test_what_measuring_needs_is_kept(name: str) -> None:
    assert worker_environment({name: "x"})[name] == "x"


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_secret_is_known_by_its_form_under_any_name(value: str) -> None:
    assert value not in worker_environment({"HARMLESS": value}).values()


@pytest.mark.parametrize("value", HARMLESS_VALUES)
def test_a_value_that_only_resembles_a_secret_is_kept(value: str) -> None:
    assert worker_environment({"HARMLESS": value})["HARMLESS"] == value


def test_what_is_always_set_wins_and_the_callers_mapping_is_left_alone() -> None:
    given = {"TOKENIZERS_PARALLELISM": "true"}
    assert worker_environment(given) == ALWAYS
    assert given == {"TOKENIZERS_PARALLELISM": "true"}
