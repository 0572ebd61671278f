"""Three fixed pieces of work that nobody's code is part of: what a machine's own noise is measured with."""
