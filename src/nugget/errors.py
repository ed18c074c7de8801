"""The one exception type that users meet: it says what is wrong and what to do."""


class NuggetError(ValueError):
    """Bad input or an impossible request; the message names the culprit and the remedy."""
