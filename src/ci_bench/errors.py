"""Errors for users: one class per cause, one exit code per family.

Owns the exit codes. Errors are raised where the cause is known and turned into an exit code in
`cli.py` only.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the process."""

    OK = 0
    POLICY_NOT_MET = 1
    BAD_INPUT = 2
    MEASURING_FAILED = 3
    INCOMPARABLE = 4
    GITHUB = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CiBenchError(Exception):
    """Base class of errors that are reported to a user without a traceback."""

    exit_code: ExitCode


class BadInput(CiBenchError):  # noqa: N818 - errors read as sentences
    """A flag, a configuration or a document is wrong; nothing was measured or overwritten."""

    exit_code = ExitCode.BAD_INPUT


class BadConfig(BadInput):
    """The configuration breaks its schema. The message lists every fault, one per line."""


class BadAcceptance(BadInput):
    """The file with accepted changes breaks its schema, or an entry cannot be added.

    The message lists every fault.
    """


class NothingInTree(BadConfig):
    """An entry names files that the tree does not have, or that have no benchmark."""


class BadDocument(BadInput):
    """A results or comparison document cannot be read.

    The message lists every fault by its JSON path.
    """


class OtherResults(BadInput):
    """The results are not the requested ones. The message names every field that differs."""


class UnknownSuite(BadInput):
    """The named suite is not part of ci-bench or of an installed plugin."""


class NoSuiteInTree(UnknownSuite):
    """The tree has no such suite: a name in its import path leads nowhere."""


class PlannerDied(UnknownSuite):
    """The planning process was ended by a signal, or took too long."""


class CannotWrite(BadInput):
    """The output folder cannot be written."""


class BadCheckout(BadInput):
    """The folder is not a git checkout from which two sides can be made."""


class CannotResume(BadInput):
    """An interrupted run cannot be resumed: its inputs changed, or cannot be verified."""


class CannotMerge(BadInput):
    """Runs are of different plans, code or machines, or contradict each other."""


class NoBase(BadInput):
    """The base commit cannot be determined, or is not in this clone."""


class NotPrepared(BadInput):
    """The prepared sides are missing, or do not match the run."""


class MeasuringFailed(CiBenchError):  # noqa: N818 - errors read as sentences
    """No case could be measured, or this machine cannot run the engine at all."""

    exit_code = ExitCode.MEASURING_FAILED


class EngineMissing(MeasuringFailed):
    """torch, transformers, datasets or evaluate is not installed here."""


class ModelUnavailable(MeasuringFailed):
    """The hub does not provide a model: it is missing or gated, or the hub cannot be reached."""


class DeviceBusy(MeasuringFailed):
    """Another run of ci-bench uses the device for longer than this one waits."""


class WrongDevice(MeasuringFailed):
    """A GPU was requested or is present, but the run would use the CPU."""


class ScratchFailed(MeasuringFailed):
    """The private folder of a run cannot be used: its disk is full, or something removed it."""


class CannotPlace(MeasuringFailed):
    """No slot of the fleet has what a lease needs, or the fleet can't be reached."""


class BadSources(MeasuringFailed):
    """The sources of a lease differ from the distributed ones, or are incomplete."""


class NoCage(MeasuringFailed):
    """A node of a fleet cannot start the containers for its leases."""


class GitFailed(MeasuringFailed):
    """git is missing, failed at something that should work, or took too long."""


class OutOfReach(MeasuringFailed):
    """Files of base or of ci-bench were modified during the run."""


class LauncherFailed(MeasuringFailed):
    """The process that starts the workers could not be started, or died."""


class GitHubFailed(CiBenchError):  # noqa: N818 - errors read as sentences
    """GitHub refused, or could not be reached. No verdict depends on it."""

    exit_code = ExitCode.GITHUB


class GitHubUnreachable(GitHubFailed):
    """No usable response after all retries: network, proxy, certificate, or an outage."""


class GitHubBusy(GitHubFailed):
    """A rate limit lasts longer than the caller is willing to wait."""


class GitHubRefused(GitHubFailed):
    """The token is not valid, or lacks a permission; on a fork's pull request that is expected."""


class GitHubClosed(GitHubFailed):
    """Writing is impossible with any permission: a locked conversation, an archived repository."""


class GitHubMissing(GitHubFailed):
    """Not found, or not visible to this token."""


class GitHubInvalid(GitHubFailed):
    """GitHub rejected the request."""


class GitHubOdd(GitHubFailed):
    """An unexpected response from GitHub: a proxy's page, a redirect, a missing field."""


class NotOnGitHub(BadInput):
    """The command needs the repository, run, event or token of a workflow."""
