"""The dynamo runner's words for how a model ended, and how they get into our typed statuses.

No torch here.

The word begins the reason of a failure, or the detail of the check `accuracy`; exports read it
there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.worker.memory_errors import OutOfMemoryError, is_out_of_memory
from ci_bench.suites.shared.worker.torch_errors import with_cause


class Word(StrEnum):
    """All that the runner writes into its accuracy column."""

    PASS = "pass"  # noqa: S105 - the answer of a check, no password
    PASS_DUE_TO_SKIP = "pass_due_to_skip"  # noqa: S105 - likewise
    FAIL_ACCURACY = "fail_accuracy"
    FAIL_TO_RUN = "fail_to_run"
    OOM = "OOM"
    EAGER_1ST_RUN_OOM = "eager_1st_run_OOM"
    EAGER_1ST_RUN_FAIL = "eager_1st_run_fail"
    EAGER_2ND_RUN_OOM = "eager_2nd_run_OOM"
    EAGER_2ND_RUN_FAIL = "eager_2nd_run_fail"
    EAGER_TWO_RUNS_DIFFER = "eager_two_runs_differ"
    EAGER_FAIL_TO_RUN = "eager_fail_to_run"
    MODEL_FAIL_TO_LOAD = "model_fail_to_load"
    TIMEOUT = "timeout"
    WARMUP_FAILED = "warmup_failed"
    NOT_BITWISE_EQUIVALENT = "not_bitwise_equivalent"
    FAIL_TO_RUN_AT_BATCH = "fail_to_run_at_batch"
    FAIL_BATCH_INVARIANCE_AT = "fail_batch_invariance_at"
    INFRA_ERROR = "infra_error"
    EAGER_VARIATION = "eager_variation"


class ModelFailed(RuntimeError):  # noqa: N818 - it says what happened, and is shown to the user
    """A model, or its compiled form, raised an error. The message begins with the runner's word."""


@contextmanager
def worded(failed: Word, out_of_memory: Word) -> Iterator[None]:
    """Put the word of the phase in front of whatever is raised.

    A reason to skip stays one.
    """
    try:
        yield
    except (Unsupported, ModelFailed, OutOfMemoryError):
        raise
    except Exception as error:
        raise in_words(error, failed, out_of_memory) from error


def in_words(error: Exception, failed: Word, out_of_memory: Word) -> Exception:
    """Return an error with the word, for one without."""
    text = with_cause(f"{type(error).__name__}: {error}")
    if is_out_of_memory(error):
        return OutOfMemoryError(f"{out_of_memory}: {text}")
    return ModelFailed(f"{failed}: {text}")
