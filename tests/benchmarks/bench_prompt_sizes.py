"""How long prompts are, by section, in three states of a run; nothing is asked of a model.

python -m tests.benchmarks.bench_prompt_sizes
python -m tests.benchmarks.bench_prompt_sizes --show crossover --state softmax
"""

import argparse
import re

from evolve.core.model import ModelRequest
from evolve.core.protocols import ModelOperator
from operators import Crossover, Edit, RewriteFull, Template
from operators.knowledge import Knowledge
from tests.operators.prompt_states import STATES

OPERATORS: dict[str, ModelOperator] = {
    "first version": RewriteFull(from_scratch=True, knowledge=Knowledge()),
    "edit": Edit(knowledge=Knowledge()),
    "rewrite_full": RewriteFull(knowledge=Knowledge()),
    "crossover": Crossover(knowledge=Knowledge()),
    "template": Template(knowledge=Knowledge()),
}
_QUOTED = re.compile(r"<quoted (\w+) [^\n]*>\n.*?\n</quoted \1>", re.DOTALL)
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", default="", help="print this operator's prompt")
    parser.add_argument("--state", default="", help="the beginning of a state's name")
    options = parser.parse_args()
    for state, (make, device) in STATES.items():
        if not state.startswith(options.state):
            continue
        history = make()
        for name, operator in OPERATORS.items():
            parents = history.elites()[: operator.parents]
            asked = operator.propose(history.context(parents, device=device))
            if not isinstance(asked, ModelRequest):
                print(f"{state:18} {name:14} {asked}")
            elif not options.show:
                print(f"{state:18} {name:14} {sum(sizes(asked).values()):6}  {said(asked)}")
            elif name == options.show:
                print(*(message.content for message in asked.messages), sep=f"\n\n{'=' * 80}\n\n")


def sizes(asked: ModelRequest) -> dict[str, int]:
    """Characters by heading; those of the system message under `system`."""
    system, user = (message.content for message in asked.messages)
    masked = _QUOTED.sub(lambda found: "." * len(found[0]), user)
    marks = [(found.start(), found[1]) for found in _HEADING.finditer(masked)]
    ends = [start for start, _ in marks[1:]] + [len(user)]
    found = {"system": len(system)}
    for (start, heading), end in zip(marks, ends, strict=True):
        found[heading] = found.get(heading, 0) + end - start
    return found


def said(asked: ModelRequest) -> str:
    return ", ".join(f"{heading[:24]} {size}" for heading, size in sizes(asked).items())


if __name__ == "__main__":
    main()
