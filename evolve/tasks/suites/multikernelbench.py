"""MultiKernelBench (Wen et al., 2025) from a user's checkout: files of KernelBench's form.

Those of NPUKernelBench list their inputs in a file of JSON lines beside the module. The suite
times the first of them only, and so does the judge; all are checked.
"""

from pathlib import Path

from evolve.core.suites import TaskText
from evolve.core.task import Case
from evolve.tasks.beside import encoded
from evolve.tasks.suites.checkout import read_data
from evolve.tasks.suites.listed import HELPERS, ListedSuite, defined, read_module, require_defined

_PARTS = """
PART = "first"
_every_group = get_input_groups


def get_input_groups():
    groups = _every_group()
    return groups[:1] if PART == "first" else groups[1:]

"""


class MultiKernelBench(ListedSuite):
    """Labels are `CATEGORY/NAME`; the category is the level."""

    name = "multikernelbench"
    variable = "MULTIKERNELBENCH_PATH"
    _repository = "https://github.com/wzzll123/MultiKernelBench"
    _places = ("reference",)

    def _found(self, root: Path) -> dict[str, Path]:
        return {
            f"{path.parent.name}/{path.stem}": path
            for path in sorted((root / "reference").glob("*/*.py"))
            if not path.name.startswith("_")
        }

    def _task(self, label: str, path: Path) -> TaskText:
        text, tree = read_module(path)
        lists_inputs = "get_input_groups" in defined(tree)
        inputs = "get_input_groups" if lists_inputs else "get_inputs"
        require_defined(path, tree, "Model", "get_init_inputs", inputs)
        data = path.with_suffix(".json")
        lines = read_data(data) if data.is_file() else ""
        # Others name it after their own file, which is called `task.py` where it runs.
        beside = data.name if data.name in text else "task.json"
        is_several = lists_inputs and len(lines.strip().splitlines()) > 1
        source = [
            "# SPDX-License-Identifier: MIT",
            f"# Reference {label} of MultiKernelBench.",
            text.strip("\n"),
            *([_PARTS] if is_several else [""]),
            f"{HELPERS} hosts as _hosts, rules as _rules",
            "",
            f"{inputs} = _hosts.hosted({inputs})",
            "suite_check = _rules.by_type((1e-4, 1e-4), integers=(1e-4, 1e-4))",
            "",
        ]
        first = Case(name="first", constants={"PART": "first"})
        others = Case(name="others", constants={"PART": "others"}, timed=False)
        return TaskText(
            "\n".join(source),
            category=path.parent.name,
            cases=(first, others) if is_several else (),
            files=encoded({beside: lines}) if lines else {},
        )
