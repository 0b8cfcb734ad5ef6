"""Texts of models and programs, as they can be stored."""


def storable(text: str) -> str:
    """The text, its lone surrogates replaced: JSON may hold halves of pairs, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
