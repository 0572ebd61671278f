"""The exchange between parent and worker: start, messages, users, scratch folders."""
