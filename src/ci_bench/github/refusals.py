"""From an answer that is no success to the error that it stands for. Pure."""

from ci_bench.errors import GitHubFailed, GitHubInvalid, GitHubMissing, GitHubOdd, GitHubRefused
from ci_bench.github.transport import Answer


def refusal(said: str, answer: Answer, message: str) -> GitHubFailed:
    """The error for an answer to `said` (method and path), with GitHub's own `message` and what would help."""
    text = f"{said} answered {answer.status}: {message or 'no reason given'}"
    needed = answer.headers.get("x-accepted-github-permissions")
    permission = f"; it needs {needed:.100}" if needed else ""
    match answer.status:
        case 401:
            return GitHubRefused(f"{text}; the token is not valid, or has expired")
        case 403 | 429:
            return GitHubRefused(f"{text}{permission}; give the job this permission (`permissions:` in the workflow)")
        case 404 | 410:
            return GitHubMissing(f"{text}{permission}; GitHub says so too where the token may not see it")
        case 400 | 405 | 406 | 409 | 413 | 415 | 422:
            return GitHubInvalid(text)
    return GitHubOdd(text)
