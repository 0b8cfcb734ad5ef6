"""`evolve rewards`: score a stored run again with any reward, and compare two of them."""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterator, Sequence

from evolve.app.database import open_store
from evolve.app.text import speedup_text, table
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.core.measurement import Ratio
from evolve.trajectories.flat import flat
from evolve.trajectories.rewards import pipeline, reward_names, shaping_names
from evolve.trajectories.rewards.agreement import Agreement, agreement
from evolve.trajectories.rewards.rescoring import Rescored, rescore
from evolve.trajectories.rewards.shaping import Scores

TOP = 10


def main(words: Sequence[str]) -> int:
    """Score the run, and print how the scores are spread and where two rewards disagree."""
    options = _parse(words)
    plans = [pipeline(name) for name in (options.reward, options.vs) if name]
    names = [plan.name for plan in plans]
    with open_store(options.store) as store:
        run = store.run(options.run)
        found = rescore(store, run.id, plans)
        if options.csv or options.jsonl:
            (_write_csv if options.csv else _write_jsonl)(names, found)
            return 0
        print(f"run {run.name}: {len(found.sequences):,} steps that made something, or failed to")
        print(table(_SPREAD, [_spread(*one) for one in zip(names, found.scores, strict=True)]))
        for name, reasons in zip(names, found.unknown, strict=True):
            for why, count in reasons.most_common():
                print(f"{name}: {count:,} unknown: {why}")
        if options.vs:
            compared = agreement(found.scores[0], found.scores[1], most=options.top)
            print("\n".join(_compared(names, found, compared)))
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "rewards",
        "Score every step of a run by its stored verdicts; no device is needed. Rewards: "
        f"{', '.join(reward_names())}, or your own as my_file.py:function. After a plus sign each, "
        f"what a trainer makes of the scores: {', '.join(shaping_names())}.",
    )
    add_run(arguments)
    arguments.add_argument(
        "--reward", required=True, metavar="NAME", help="such as dr_kernel@1+return@1+trloo@2"
    )
    arguments.add_argument(
        "--vs", metavar="NAME", help="another: their rank correlation, and where they differ most"
    )
    arguments.add_argument(
        "--top", type=int, default=TOP, metavar="N", help="differences shown (default: %(default)s)"
    )
    either = arguments.add_mutually_exclusive_group()
    either.add_argument("--csv", action="store_true", help="every step's scores, for machines")
    either.add_argument(
        "--jsonl", action="store_true", help="every step whole, with its texts and its scores"
    )
    add_store(arguments)
    options = arguments.parse_args(words)
    if options.top < 0:
        raise UsageError(f"--top {options.top}: it cannot be negative")
    return options


_SPREAD = ("reward", "scored", "unknown", "lowest", "median", "highest")


def _spread(name: str, scores: Scores) -> list[str]:
    known = [score for score in scores if score is not None]
    counts = [name, f"{len(known):,}", f"{len(scores) - len(known):,}"]
    if not known:
        return [*counts, "", "", ""]
    return [*counts, *map(_number, (min(known), statistics.median(known), max(known)))]


def _compared(names: Sequence[str], found: Rescored, compared: Agreement) -> Iterator[str]:
    """Rank correlation and the largest disagreements, in lines."""
    if compared.correlation is None:
        yield f"\n{compared.count:,} steps are scored by both, too few or too alike to be ranked"
        return
    yield (
        f"\nrank correlation {compared.correlation:.3f} (Spearman) "
        f"over {compared.count:,} steps that both score"
    )
    if not compared.differences:
        return
    numbers = [found.sequences[one.place] for one in compared.differences]
    yield "\nranked most differently (0 is the worst of them, 1 the best):"
    rows = []
    steps = found.history.at(numbers, texts=False)
    for one, step in zip(compared.differences, steps, strict=True):
        mine, other = (_number(given[one.place]) for given in found.scores)
        rows.append(
            [
                step.id,
                step.operator,
                str(step.status or step.failure.partition(":")[0]),
                _ratio(step.ratio),
                _ratio(step.gain),
                f"{mine} ({one.rank:.2f})",
                f"{other} ({one.other_rank:.2f})",
            ]
        )
    yield table(("step", "operator", "outcome", "speedup", "over its parent", *names), rows)


def _write_csv(names: Sequence[str], found: Rescored) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["step", *names])
    for row in zip(found.sequences, *found.scores, strict=True):
        writer.writerow("" if cell is None else cell for cell in row)


def _write_jsonl(names: Sequence[str], found: Rescored) -> None:
    scored = zip(*found.scores, strict=True)
    steps = found.history.at(found.sequences, samples=True)
    for step, scores in zip(steps, scored, strict=True):
        row = flat(step) | {"rewards": dict(zip(names, scores, strict=True))}
        print(json.dumps(row, ensure_ascii=False))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else speedup_text(ratio)
