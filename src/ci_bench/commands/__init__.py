"""The commands behind the command line: each builds the real objects, calls what does the work, and returns an exit code.

With `cli`, the edge of the program: nothing else reads flags or the environment. Each command
imports its own needs, which lets `--help` and the commands that don't measure start quickly.
"""
