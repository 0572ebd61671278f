"""Talking to GitHub: the only part that imports requests.

Deals in text and bytes, and knows nothing of results or verdicts. `http` and `client` speak to the
API; `baseline` finds and fetches the base side's results; `comments`, `checks` and `issues` write;
`workflow` writes what a job's runner reads. Their callers read documents and judge.
"""
