"""KernelBench-X (2026) from a user's checkout: the form of TritonBench, with a catalogue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import Problem, TaskText
from evolve.tasks.suites.checkout import CheckoutSuite, read_data, read_json
from evolve.tasks.suites.tritonbench import Parts, entry_of, imported, split, task_of

_METRICS = ("cosine_sim", "l1_relative", "rmse")


class KernelBenchX(CheckoutSuite):
    """The problems of its catalogue; other files of the folder are no part of the suite."""

    name = "kernelbench_x"
    variable = "KERNELBENCH_X_PATH"
    _repository = "https://github.com/BonnieW05/KernelBenchX"
    _places = ("data/kernelbenchx_v1.json",)

    def problems(self, checkout: Path | None) -> Sequence[Problem]:
        return [
            Problem(f"{self.name}:{label}", label, label, str(entry.get("difficulty", "")))
            for label, entry in self._catalogue(checkout).items()
        ]

    def task(self, label: str, checkout: Path | None) -> TaskText:
        catalogue, root = self._catalogue(checkout), self._root(checkout)
        if label not in catalogue:
            raise UsageError(
                f"task {self.name}:{label}: the catalogue has no such problem. "
                f"`evolve tasks list --suite {self.name}` shows all."
            )
        path = root / "data" / "kernelbenchx" / f"{label}.py"
        reference, tests = split(path)
        benchmarks = sorted((root / "metrics" / "golden_metrics").rglob(f"{path.stem}_perf.py"))
        source, cases, files = task_of(
            Parts(
                path=f"kernelbenchx/{label}.py",
                reference=reference,
                tests=tests,
                entry=entry_of(reference, tests, path),
                benchmark=read_data(benchmarks[0]) if benchmarks else "",
                helpers=imported(tests, root / "utils"),
                rule=_rule(catalogue[label]),
                licence="Apache-2.0",
            )
        )
        return TaskText(source, category=path.parent.name.lower(), cases=cases, files=files)

    def _catalogue(self, checkout: Path | None) -> dict[str, dict[str, Any]]:
        """Its entries by label: `Category/name`."""
        path = self._root(checkout) / "data" / "kernelbenchx_v1.json"
        try:
            entries = read_json(path)
            return {str(one["file"]).removesuffix(".py"): one for one in entries}
        except (TypeError, KeyError) as error:
            raise UsageError(f"{path} is no JSON list of problems ({error!r}).") from error


def _rule(entry: dict[str, Any]) -> str:
    limits = entry.get("precision_thresholds")
    if not limits:
        return "assert_close()"
    return f"precision({', '.join(f'{name}={float(limits[name])}' for name in _METRICS)})"
