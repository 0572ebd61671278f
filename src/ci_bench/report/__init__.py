"""What people read: values in, text out. No input or output, no judging."""
