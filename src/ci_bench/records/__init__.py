"""The values that flow from stage to stage, and their JSON.

No input or output but in `documents`.
"""
