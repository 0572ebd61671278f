"""What parent and worker exchange: start, messages, users, scratch folders."""
