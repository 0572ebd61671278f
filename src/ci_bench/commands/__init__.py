"""The commands behind the command line.

Each builds the real objects, calls the function that does the work, and returns an exit code. With
`cli` they are the edge of the program: no other module reads flags or the environment.
"""
