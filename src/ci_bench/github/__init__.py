"""Talking to GitHub: the only part that imports requests.

Deals in text and bytes, and knows nothing of results or verdicts.

`client` speaks HTTP; `baseline` finds and fetches the base side's results; `publishing` writes the
comment and the check; `workflow` writes what a job's runner reads. Their callers read documents and
judge.
"""
