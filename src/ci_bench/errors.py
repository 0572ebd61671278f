"""Everything that can go wrong for a user, one class per cause, one exit code per family.

Owns the exit codes. Errors are raised where the cause is known and turned into an exit code in `cli.py` only.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller."""

    OK = 0
    POLICY_NOT_MET = 1
    BAD_INPUT = 2
    MEASURING_FAILED = 3
    INCOMPARABLE = 4
    GITHUB = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CiBenchError(Exception):
    """The root of what is reported to a user without a traceback."""

    exit_code: ExitCode


class BadInput(CiBenchError):  # noqa: N818 - errors read as sentences
    """A flag, a configuration or a document is wrong; nothing was measured or overwritten."""

    exit_code = ExitCode.BAD_INPUT


class BadConfig(BadInput):
    """The configuration breaks its schema. The message lists every fault, one per line."""


class NothingInTree(BadConfig):
    """An entry names files that the tree does not have, or that have no benchmark."""


class BadDocument(BadInput):
    """A results or comparison document cannot be read. The message lists every fault by its JSON path."""


class OtherResults(BadInput):
    """The results are of something else than what was asked for. The message names every field that differs."""


class UnknownSuite(BadInput):
    """A suite is named that neither ci-bench nor an installed plugin provides."""


class NoSuiteInTree(UnknownSuite):
    """The tree has no such suite: a name in its import path leads nowhere."""


class PlannerDied(UnknownSuite):
    """The process that planned was ended by a signal, or took too long."""


class CannotWrite(BadInput):
    """The output folder cannot be written."""


class BadCheckout(BadInput):
    """The folder is no git checkout that two sides can be made of."""


class CannotResume(BadInput):
    """An interrupted run cannot be resumed: its inputs changed, or cannot be verified."""


class CannotMerge(BadInput):
    """Runs are of different plans, code or machines, or contradict each other."""


class NoBase(BadInput):
    """Which commit to compare with cannot be told, or that commit is not in this clone."""


class NotPrepared(BadInput):
    """No prepared sides are where they were looked for, or they are of something else than what is to be measured."""


class PlotsMissing(BadInput):
    """Picture files are asked for, and the extra that draws them is not installed."""


class NoConfiguration(BadInput):
    """The base branch has no configuration yet, and head adds it."""


class MeasuringFailed(CiBenchError):  # noqa: N818 - errors read as sentences
    """No case could be measured, or this machine cannot run the engine at all."""

    exit_code = ExitCode.MEASURING_FAILED


class EngineMissing(MeasuringFailed):
    """torch, transformers, datasets or evaluate is not installed here."""


class ModelUnavailable(MeasuringFailed):
    """The hub does not give a model: it is not there, gated, or the hub cannot be reached."""


class DeviceBusy(MeasuringFailed):
    """Another run of ci-bench measures on the device, for longer than this one wants to wait."""


class WrongDevice(MeasuringFailed):
    """The CPU would be measured where a GPU was asked for, or is there."""


class ScratchFailed(MeasuringFailed):
    """The private folder of a run cannot be used: its disk is full, or something removed it."""


class CannotPlace(MeasuringFailed):
    """No slot of the fleet has what a lease needs, or the fleet can't be reached."""


class BadSources(MeasuringFailed):
    """The sources that a lease was given are not those that were handed out, or are not whole."""


class NoCage(MeasuringFailed):
    """A node of a fleet cannot start the containers that its leases are to run in."""


class GitFailed(MeasuringFailed):
    """git is missing, failed at something that should work, or took too long."""


class OutOfReach(MeasuringFailed):
    """What base or the engine consists of was changed by code that has no business there."""


class LauncherFailed(MeasuringFailed):
    """The process that starts the workers could not be started, or died."""


class GitHubFailed(CiBenchError):  # noqa: N818 - errors read as sentences
    """GitHub said no, or could not be reached. No verdict depends on it."""

    exit_code = ExitCode.GITHUB


class GitHubUnreachable(GitHubFailed):
    """No usable answer came, however often it was asked for: network, proxy, certificate, or an outage."""


class GitHubBusy(GitHubFailed):
    """A rate limit holds for longer than the caller is willing to wait."""


class GitHubRefused(GitHubFailed):
    """The token is not valid, or lacks a permission; on a fork's pull request that is expected."""


class GitHubClosed(GitHubFailed):
    """Nobody can write there with this token, and no permission helps: a locked conversation, an archived repository."""


class GitHubMissing(GitHubFailed):
    """What was asked for is not there, any more, or not for this token to see."""


class GitHubInvalid(GitHubFailed):
    """GitHub did not accept what was sent."""


class GitHubOdd(GitHubFailed):
    """An answer that GitHub's API does not give: a proxy's page, a redirect to elsewhere, a field that is missing."""


class NotOnGitHub(BadInput):
    """What only a workflow has is needed and missing: repository, run, event or token."""
