"""Causes of torch's errors whose own words do not name them. Imports no torch."""

LAZY = (
    "the model has lazy layers, whose weights do not exist yet: call it once on an input before you"
    " return it"
)
_CAUSES = {
    "does not require grad and does not have a grad_fn": (
        "the loss of this step depends on no trained weight: a model that drops layers at random"
        " has to keep at least one of them"
    ),
    "uninitialized parameter": LAZY,
}


def with_cause(message: str) -> str:
    """Put the likely cause and the remedy before the message of an error.

    The message is unchanged if these are unknown or in it already.
    """
    likely = next((cause for words, cause in _CAUSES.items() if words in message), "")
    return f"{likely} ({message})" if likely and likely not in message else message
