"""Small changes of the parent by search/replace edits."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from evolve.languages.registry import detect_language, find_language
from evolve.languages.torch import TORCH
from operators.base import Base
from operators.checks import check_choice
from operators.prompting.composition import Prompted
from operators.prompting.reply_handling import Answering, read_edited
from operators.source.scope import EditScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(Answering):
    """Asks for one improvement of the parent as search/replace blocks.

    A parent in another language than `language` names is not edited: that is a translation, which
    is `Translate`'s, if that is among a run's operators. A parent in torch alone is edited: it has
    no kernels to translate. The form is that of AlphaEvolve (arXiv 2506.13131);
    `edit_scope=strict` adds the constraints of Kernel-Smith (`operators.source.scope`). Edits are
    made as a whole, or refused with a reason.

    Args:
        edit_scope: `free`, or `strict` to keep signatures, grids, program ids and masks.
    """

    edit_scope: str = "free"

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_choice("operators.*.edit_scope", self.edit_scope, [*EditScope])

    def propose(self, context: Context) -> ModelRequest | Declined:
        if not context.parents:
            return Declined("needs a parent")
        base = Base.of(context.parents[:1])
        (parent, _), *_ = base.programs
        written = detect_language(context.facts.source(parent))
        if self.language not in ("auto", written.name) and written is not TORCH:
            into = find_language(self.language).title
            return Declined(
                f"operators.{context.operator}.language={self.language}: the parent is in "
                f"{written.title}, and edits need one in {into}: add operators=[...,translate]"
            )
        answer = self.text("answer_edits", scope=self.edit_scope)
        return self.ask(context, self.text("edit"), base=base, answer=answer)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        before = Base.recall(exchanges).source(context.facts)
        found = read_edited(exchanges, before, EditScope(self.edit_scope))
        return self.settle(context, exchanges, found)
