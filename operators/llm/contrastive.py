"""Learning from the contrast between programs of different speed."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from operators.base import Base
from operators.checks import check_number, check_whole
from operators.prompting.composition import Prompted
from operators.prompting.inspirations import contrasting
from operators.prompting.replies import three_parts
from operators.prompting.reply_handling import Answering, read_whole
from operators.quoting import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrastive(Answering):
    """The contrastive prompt of CUDA-L1 (arXiv 2507.14111).

    Correct programs are put into buckets by score. Distinct buckets are drawn with a probability
    proportional to exp((bucket mean - mean of all) / temperature), and one program from each is
    shown. The answer has three parts: an analysis of why one is faster, a design, and the code.
    Width and temperature are not published; these are ours, in units of log speedup. Of an archive
    with islands, all programs are of one of them, which take turns: the paper's other variant.

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
        check_whole("operators.*.exemplars", self.exemplars, least=2)
        check_number("operators.*.bucket_width", self.bucket_width, least=1e-3)
        check_number("operators.*.bucket_temperature", self.bucket_temperature, least=1e-3)

    @property
    def parents(self) -> int:
        return 0

    def propose(self, context: Context) -> ModelRequest | Declined:
        chosen = contrasting(
            context.peers,
            self.exemplars,
            context.rng,
            width=self.bucket_width,
            temperature=self.bucket_temperature,
        )
        if len(chosen) < self.exemplars:
            return Declined(f"needs correct programs of {self.exemplars} different speeds")
        answer = self.text("answer_contrastive")
        base = Base.of(chosen)
        job = self.text("contrastive")
        heading = "Programs to compare"
        return self.ask(context, job, base=base, answer=answer, heading=heading, directed=False)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        design = three_parts(exchanges[-1].reply.text).get("design", "")
        note = f"design: {one_line(design)}" if design else ""
        return self.settle(context, exchanges, read_whole(exchanges), note=note)
