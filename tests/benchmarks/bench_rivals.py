"""What one program costs, sampled and added, here and in other frameworks, in the same run.

    python -m tests.benchmarks.bench_rivals --openevolve PATH --shinka PATH --skydiscover PATH \
        --codeevolve PATH --gepa PATH

The paths are checkouts, whose databases are imported without the packages around them (those want
clients of language models); what they need themselves has to be installed. Every one runs in a
fresh process with its own defaults, sources of 4 KB and random scores. `evolve` is a whole step,
all of it committed to disk: ask, store, tell, offer (`bench_engine`). OpenEvolve, SkyDiscover and
CodeEvolve hold everything in memory, ShinkaEvolve commits to SQLite; its embeddings are off. GEPA
writes its whole state after every step; it has one validation example here, as for one task.
"""

import argparse
import contextlib
import importlib
import io
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.bench_engine import measure
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.store_filling import distinct_source

CALLS = 20
MAX_S = 20.0  # seconds that the timed calls of one kind may take together

Add = Callable[[int, str, float], object]
Sample = Callable[[], object]


def main() -> None:
    options = _options()
    if options.measure:
        with contextlib.redirect_stdout(io.StringIO()):
            found = cost(options.measure, options.checkout, options.size)
        print(json.dumps(found))
        return
    print_conditions()
    print(f"{'':14}{'programs':>9} {'sample ms':>10} {'add ms':>8} {'together':>9}   (medians)")
    for size in map(int, options.sizes.split(",")):
        for name in ("evolve", *RIVALS):
            checkout = getattr(options, name, "") or ""
            if checkout or name == "evolve":
                print(_line(name, size, _in_fresh_process(name, checkout, size)), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000")
    for name in RIVALS:
        parser.add_argument(f"--{name}", metavar="PATH", help="a checkout of it")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--checkout", default="", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_fresh_process(name: str, checkout: str, size: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_rivals", "--measure", name]
    command += ["--checkout", checkout, "--size", str(size)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def _line(name: str, size: int, found: dict[str, float]) -> str:
    parts = "".join(
        f"{found[key]:>10.2f}" if key in found else " " * 10 for key in ("sample", "add")
    )
    return f"{name:14}{size:>9} {parts[:10]}{parts[10:]:>9}{found['both']:>10.2f}"


def cost(name: str, checkout: str, size: int) -> dict[str, float]:
    """Median milliseconds of a call with so many programs held."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "evolve":
            path = Path(folder) / "bench.db"
            grow(path, size)
            return {"both": measure(path)["median_ms"]}
        add, sample = RIVALS[name](Path(checkout), Path(folder), size)
        rng = random.Random(0)
        for number in range(size):
            add(number, distinct_source(number), rng.random())
        news = iter(range(size, size + CALLS))
        found = {
            "sample": _median_ms(sample),
            "add": _median_ms(lambda: add(n := next(news), distinct_source(n), rng.random())),
        }
    return found | {"both": sum(found.values())}


def _median_ms(call: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < CALLS and sum(times) < MAX_S:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _package(name: str, folder: Path) -> None:
    """Have modules of a package found without running its `__init__`."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def openevolve(checkout: Path, folder: Path, size: int) -> tuple[Add, Sample]:
    _package("openevolve", checkout / "openevolve")
    theirs = importlib.import_module("openevolve.database")
    config = theirs.DatabaseConfig(population_size=size + 1000)
    database = theirs.ProgramDatabase(config)

    def add(number: int, source: str, score: float) -> None:
        program = theirs.Program(
            id=str(number), code=source, metrics={"combined_score": score}, iteration_found=number
        )
        database.add(program, iteration=number, target_island=number % config.num_islands)

    return add, database.sample


def shinka(checkout: Path, folder: Path, size: int) -> tuple[Add, Sample]:
    _package("shinka", checkout / "shinka")
    embed = types.ModuleType("shinka.embed")
    embed.EmbeddingClient = object  # type: ignore[attr-defined]
    sys.modules["shinka.embed"] = embed
    theirs = importlib.import_module("shinka.database.dbase")
    database = theirs.ProgramDatabase(theirs.DatabaseConfig(db_path=str(folder / "shinka.db")))

    def add(number: int, source: str, score: float) -> None:
        program = theirs.Program(
            id=str(number), code=source, combined_score=score, correct=True, generation=number
        )
        database.add(program)

    return add, database.sample


def skydiscover(checkout: Path, folder: Path, size: int) -> tuple[Add, Sample]:
    _package("skydiscover", checkout / "skydiscover")
    theirs = importlib.import_module("skydiscover.search.topk.database")
    database = theirs.TopKDatabase("topk", theirs.DatabaseConfig())

    def add(number: int, source: str, score: float) -> None:
        program = theirs.Program(
            id=str(number),
            solution=source,
            metrics={"combined_score": score},
            iteration_found=number,
        )
        database.add(program, iteration=number)

    return add, database.sample


def codeevolve(checkout: Path, folder: Path, size: int) -> tuple[Add, Sample]:
    _package("codeevolve", checkout / "codeevolve")
    theirs = importlib.import_module("codeevolve.database")
    database = theirs.ProgramDatabase(0)
    rank, database.update_alive_caches = database.update_alive_caches, lambda: None

    def add(number: int, source: str, score: float) -> None:
        if number == size:
            database.update_alive_caches = rank  # filling goes without, for it sorts at every step
        program = theirs.Program(id=str(number), code=source, language="python", fitness=score)
        database.add(program)

    def sample() -> object:
        database.update_alive_caches = rank
        return database.sample("roulette", num_inspirations=3, roulette_by_rank=True)

    return add, sample


def gepa(checkout: Path, folder: Path, size: int) -> tuple[Add, Sample]:
    root = checkout / "src" / "gepa"
    inner = ("core", "logging", "proposer", "proposer.reflective_mutation", "strategies")
    for name in ("", *(f".{each}" for each in inner)):
        _package(f"gepa{name}", root.joinpath(*name.split(".")))
    state_of = importlib.import_module("gepa.core.state")
    selectors = importlib.import_module("gepa.strategies.candidate_selector")

    def judged(score: float) -> object:
        return state_of.ValsetEvaluation({0: score}, {0: score})

    state = state_of.GEPAState({"kernel": distinct_source(-1)}, judged(0.0))
    selector = selectors.ParetoCandidateSelector(random.Random(0))

    def add(number: int, source: str, score: float) -> None:
        state.update_state_with_new_program(
            [0], {"kernel": source}, judged(score), None, number, iteration_id=str(number)
        )
        if number >= size:
            state.save(str(folder))

    return add, lambda: selector.select_candidate_idx(state)


RIVALS = {
    "openevolve": openevolve,
    "shinka": shinka,
    "skydiscover": skydiscover,
    "codeevolve": codeevolve,
    "gepa": gepa,
}

if __name__ == "__main__":
    main()
