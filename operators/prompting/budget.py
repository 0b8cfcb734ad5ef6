"""The size of a prompt: sections by priority within a number of tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from evolve.core.source.tokens import estimate_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a prompt.

    Attributes:
        name: for accounts and messages.
        head: the text before the items; stays out where no item stays in, unless required.
        items: texts, the most useful first; the last ones go first.
        priority: 0 is required as a whole; of the others, lower numbers stay in longer.
        left_out: how many items `fit` has taken away.
    """

    name: str
    head: str = ""
    items: tuple[str, ...] = ()
    priority: int = 0
    left_out: int = 0

    @property
    def text(self) -> str:
        more = f"({self.left_out} more left out for length.)" if self.left_out else ""
        return "\n\n".join(part for part in (self.head, *self.items, more) if part)


class PromptTooLong(ValueError):
    """The required sections of a prompt exceed its budget."""


def fit(sections: Iterable[Section], budget: int, *, usual: int | None = None) -> list[Section]:
    """The sections in their order, cut to a budget of tokens; empty ones are left out.

    Whole items only: half a program would be worse than none.

    Args:
        sections: in the order of the prompt.
        budget: the most tokens that all of them take.
        usual: the tokens that they take together with optional ones; None for the budget.

    Raises:
        PromptTooLong: the required sections alone take more.
    """
    given = list(sections)
    used = sum(estimate_tokens(section.text) for section in given if section.priority == 0)
    if used > budget:
        raise PromptTooLong(f"the prompt needs {used} tokens and may take {budget}")
    usual = budget if usual is None else min(usual, budget)
    kept = {id(section): section for section in given if section.priority == 0}
    for section in sorted(given, key=lambda section: section.priority):
        if section.priority:
            items = _within(section, usual - used)
            if items:
                cut = replace(section, items=items, left_out=len(section.items) - len(items))
                kept[id(section)] = cut
                used += estimate_tokens(cut.text)
    return [kept[id(section)] for section in given if id(section) in kept and section.text]


def _within(section: Section, budget: int) -> tuple[str, ...]:
    """As many of the first items as fit together with the head and the remark on the others."""
    for count in range(len(section.items), 0, -1):
        items = section.items[:count]
        cut = replace(section, items=items, left_out=len(section.items) - count)
        if estimate_tokens(cut.text) <= budget:
            return items
    return ()
