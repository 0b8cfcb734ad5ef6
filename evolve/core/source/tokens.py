"""How many tokens a text takes, without a tokenizer at hand."""

BYTES_PER_TOKEN = 3
"""Code takes three to four bytes a token in current vocabularies; prose takes more."""


def estimate_tokens(text: str) -> int:
    """An estimate from above for code and prose, which is the same everywhere.

    A token for every digit, as Qwen (arXiv 2309.16609) and Gemma (arXiv 2403.08295) split numbers,
    and one for every three other bytes. `evolve.llm.prices.prompt_bound` is an upper bound for any
    text.

    >>> estimate_tokens("x = y"), estimate_tokens("0123456789")
    (2, 10)
    """
    digits = sum(map(text.count, "0123456789"))
    rest = len(text.encode("utf-8", "replace")) - digits
    return digits - (-rest // BYTES_PER_TOKEN)
