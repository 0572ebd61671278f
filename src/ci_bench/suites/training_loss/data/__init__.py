"""The embedded data: reviews, tokenizer, model configuration and metric, and the generator that wrote them."""
