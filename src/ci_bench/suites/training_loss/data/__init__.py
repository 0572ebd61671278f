"""Embedded data: reviews, tokenizer, model configuration and metric, and their generator."""
