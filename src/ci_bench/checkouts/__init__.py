"""The trees that are measured: git, worktrees, environments, and their integrity."""
