"""Knowledge about kernels, as files: constraints, guidance, hardware.

Documents are Markdown with a front matter; `load` reads those that ship and a user's own folders,
`retrieve` picks the documents for a diagnosis, `skeleton` writes a document from a finished run.
`Knowledge` is all of it as a component of a run (`conf/knowledge`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from operators.checks import check_whole
from operators.knowledge.category import PRODUCTS, operation_of
from operators.knowledge.document import Bottleneck, Document, Evidence, Part, parse
from operators.knowledge.library import SHIPPED, load
from operators.knowledge.retrieval import (
    Diagnosis,
    Excerpt,
    device_path,
    is_proven,
    rank,
    retrieve,
    search,
)
from operators.knowledge.skill import skeleton

__all__ = [
    "PRODUCTS",
    "Bottleneck",
    "Diagnosis",
    "Document",
    "Evidence",
    "Excerpt",
    "Knowledge",
    "Part",
    "device_path",
    "load",
    "operation_of",
    "parse",
    "rank",
    "retrieve",
    "search",
    "skeleton",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The knowledge base of a run.

    Args:
        folders: a user's documents beside those that ship.
        limit: the most documents in one prompt; 0 for none.
        budget_tokens: limit for all together.
        unmeasured: whether also those that ship whose code was not run on such a device (see
            `operators.knowledge.retrieval.is_proven`).

    Raises:
        UsageError: a setting is out of range, or a document cannot be read.
    """

    folders: Sequence[str] = ()
    limit: int = 2
    budget_tokens: int = 1500
    unmeasured: bool = False
    documents: tuple[Document, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole("knowledge.limit", self.limit, least=0)
        check_whole("knowledge.budget_tokens", self.budget_tokens, least=0)
        object.__setattr__(self, "documents", load(self.folders))

    def retrieve(self, diagnosis: Diagnosis) -> tuple[Excerpt, ...]:
        """The best documents for a diagnosis, within the limits."""
        found = [each for each in self.documents if self._is_told(each, diagnosis)]
        return retrieve(found, diagnosis, limit=self.limit, budget_tokens=self.budget_tokens)

    def _is_told(self, document: Document, diagnosis: Diagnosis) -> bool:
        """A user's own documents always are; those that ship not if they are about others."""
        if not Path(document.path).is_relative_to(SHIPPED):
            return True
        kinds = document.tags.get("category", ())
        if kinds and diagnosis.category and diagnosis.category not in kinds:
            return False
        if document.tags.get("error") and not diagnosis.error:
            return False
        return self.unmeasured or is_proven(document, diagnosis.device)
