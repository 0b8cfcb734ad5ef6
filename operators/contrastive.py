"""Learning from the contrast between programs of different speed."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Elite, Reading
from operators.answers import Answering, read_whole
from operators.base import Base
from operators.checks import check_number, check_whole
from operators.composition import Prompted
from operators.quoting import one_line
from operators.replies import without_thought

_SAMPLE = 1024  # elites that are put into buckets
_PART = re.compile(r"^#+[ \t]*(analysis|design|code)\b[^\n]*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrastive(Answering):
    """The contrastive prompt of CUDA-L1 (arXiv 2507.14111).

    Correct programs are put into buckets by score. Distinct buckets are drawn with a probability
    proportional to exp((bucket mean - mean of all) / temperature), and one program from each is
    shown. The answer has three parts: an analysis of why one is faster, a design, and the code.
    Width and temperature are not published; these are ours, in units of log speedup.

    Args:
        exemplars: how many programs from as many buckets.
        bucket_width: of a bucket, in log speedup (0.1 is about 10 %).
        bucket_temperature: of the draw, in log speedup; small for the fastest buckets only.
    """

    top: int = 0  # other programs would blur the contrast
    diverse: int = 0
    exemplars: int = 2
    bucket_width: float = 0.1
    bucket_temperature: float = 0.5

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.contrastive.exemplars", self.exemplars, least=2)
        check_number("operators.contrastive.bucket_width", self.bucket_width, least=1e-3)
        check_number(
            "operators.contrastive.bucket_temperature", self.bucket_temperature, least=1e-3
        )

    @property
    def parents(self) -> int:
        return 0

    def propose(self, context: Context) -> ModelRequest | Declined:
        chosen = self._exemplars(context)
        if len(chosen) < self.exemplars:
            return Declined(f"needs correct programs of {self.exemplars} different speeds")
        answer = self.text("answer_contrastive")
        base = Base.of(chosen)
        job = self.text("contrastive")
        return self.ask(context, job, base=base, answer=answer, heading="Programs to compare")

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        design = three_parts(exchanges[-1].reply.text).get("design", "")
        note = f"design: {one_line(design)}" if design else ""
        return self.settle(context, exchanges, read_whole(exchanges), note=note)

    def _exemplars(self, context: Context) -> list[Elite]:
        """One program from each drawn bucket, the fastest first."""
        stride = -(-len(context.elites) // _SAMPLE) or 1
        buckets: dict[int, list[Elite]] = {}
        for elite in context.elites[::stride]:
            buckets.setdefault(math.floor(elite.fitness.value / self.bucket_width), []).append(
                elite
            )
        means = {number: _mean(bucket) for number, bucket in buckets.items()}
        # Gumbel's trick: the largest keys are a draw without replacement by softmax. The mean of
        # all programs moves every key alike, and so falls out.
        keys = {
            number: means[number] / self.bucket_temperature
            - math.log(-math.log(context.rng.random() or 0.5))
            for number in sorted(means)
        }
        drawn = sorted(keys, key=lambda number: -keys[number])[: self.exemplars]
        return [context.rng.choice(buckets[number]) for number in sorted(drawn, reverse=True)]


def _mean(bucket: Sequence[Elite]) -> float:
    return math.fsum(elite.fitness.value for elite in bucket) / len(bucket)


def three_parts(reply: str) -> dict[str, str]:
    """The parts of an answer by name (`analysis`, `design`, `code`); those that are there."""
    text = without_thought(reply)
    heads = list(_PART.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {
        head[1].lower(): text[head.end() : end].strip()
        for head, end in zip(heads, ends, strict=False)  # without heads there is one end too many
    }
