"""Licences and splits.

- An SPDX line is read from any comment; what forbids adapted or commercial use forbids training.
- A list of allowed licences leaves out what is unknown; every part of an expression counts.
- Families are never divided; the same families give the same split; few of them give no test split.
"""

import pytest

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.trajectories.decontamination.licences import UNKNOWN, allows_training, licence_of
from evolve.trajectories.decontamination.splits import families_of, family_of
from evolve.trajectories.decontamination.splits import test_families as split

MODEL = "class Model: ...\n"
SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax({}, dim={})
"""


def test_the_licence_of_a_task_is_its_spdx_line():
    assert licence_of(f"# SPDX-License-Identifier: Apache-2.0\n{MODEL}") == "Apache-2.0"
    assert licence_of('"""Sums.\n\nSPDX-License-Identifier: MIT OR BSD-2-Clause\n"""') == (
        "MIT OR BSD-2-Clause"
    )
    assert licence_of(MODEL) == UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "# spdx-license-identifier: CC-BY-NC-4.0",
        "# SPDX-License-Identifier: 'CC-BY-NC-4.0'",
        "# SPDX-License-Identifier: MIT and LicenseRef-Vendor",
        "# SPDX-License-Identifier: MIT, LicenseRef-Vendor",
        "# SPDX-License-Identifier: MIT AND\n#   CC-BY-NC-4.0",
        "// SPDX-License-Identifier: /* CC-BY-NC-4.0 */",
        "# SPDX-License-Identifier: CC BY-NC 4.0",
        "# SPDX-License-Identifier: DocumentRef-vendor:LicenseRef-Terms",
    ],
)
def test_a_tag_that_is_written_loosely_still_forbids(line: str):
    assert not allows_training(licence_of(f"{line}\n{MODEL}"))


def test_what_stands_around_a_tag_is_no_part_of_it():
    assert licence_of(f"<!-- SPDX-License-Identifier: MIT -->\n{MODEL}") == "MIT"
    assert licence_of(f"# SPDX-License-Identifier: MIT.\n{MODEL}") == "MIT"
    assert licence_of(f"# SPDX-License-Identifier: MIT\n# A sum.\n{MODEL}") == "MIT"
    assert allows_training(
        licence_of(f"# SPDX-License-Identifier: mit or zlib\n{MODEL}"), ["MIT", "Zlib"]
    )


def test_every_licence_that_a_file_names_counts():
    both = "# SPDX-License-Identifier: {}\nclass Model: ...\n# SPDX-License-Identifier: {}\n"
    mixed = licence_of(both.format("Apache-2.0", "CC-BY-NC-4.0"))
    assert mixed == "Apache-2.0 AND CC-BY-NC-4.0"
    assert not allows_training(mixed)
    assert licence_of(both.format("MIT", "MIT")) == "MIT"
    choice = licence_of(both.format("MIT OR Zlib", "CC-BY-4.0"))
    assert choice == "(MIT OR Zlib) AND CC-BY-4.0"
    assert allows_training(choice)
    assert not allows_training(choice, ["MIT", "Zlib"])


@pytest.mark.parametrize("licence", ["MIT", "Apache-2.0", "CC-BY-4.0", "GPL-3.0-only", UNKNOWN])
def test_a_licence_that_does_not_forbid_training_allows_it(licence: str):
    assert allows_training(licence)


@pytest.mark.parametrize(
    "licence",
    [
        "CC-BY-NC-4.0",
        "CC-BY-ND-4.0",
        "LicenseRef-Vendor",
        "Proprietary",
        "MIT AND CC-BY-NC-SA-4.0",
        "PolyForm-Noncommercial-1.0.0",
    ],
)
def test_a_licence_with_terms_against_it_forbids_training(licence: str):
    assert not allows_training(licence)


def test_named_licences_are_all_that_is_allowed():
    assert allows_training("MIT", ["MIT", "BSD-*"])
    assert allows_training("(MIT OR BSD-3-Clause)", ["MIT", "BSD-*"])
    assert allows_training("LicenseRef-Ours", ["LicenseRef-Ours"])
    assert not allows_training("Apache-2.0", ["MIT"])
    assert not allows_training(UNKNOWN, ["MIT"])


def test_a_family_is_the_declared_category_and_never_a_level_of_a_suite():
    softmax = Task(name="softmax", source=MODEL, category="softmax")
    assert family_of(softmax) == "softmax"
    first = Task(name="kernelbench:1/19", source=MODEL, category="level1")
    same = Task(name="mine", source=f"# another layout\n{MODEL}")
    other = Task(name="other", source="class Model: size = 2\n")
    assert family_of(first) == family_of(same) != family_of(other)


def test_tasks_that_differ_in_sizes_only_are_one_family():
    """Else the test split has the tasks of the training split, a little larger."""
    module = "{}{}\ndef get_inputs():\n    return [ROWS]\n"
    small, large = (
        Task(name=name, source=module.format(MODEL, size))
        for name, size in (("small", "ROWS = 8"), ("large", "# larger\nROWS = 8192"))
    )
    assert family_of(small) == family_of(large)


def test_a_model_with_and_without_a_category_is_of_one_family_wherever_it_comes_from():
    shipped = Task(name="softmax", source=SOFTMAX.format("x", "-1"), category="softmax")
    relative = Task(name="safe", source=SOFTMAX.format("x.exp()", "1"), category="softmax")
    suite = Task(name="kernelbench:1/23", source=SOFTMAX.format("values", "1"), category="level1")
    other = Task(name="other", source=SOFTMAX.format("x.sum()", "1"))
    found = families_of([suite, other, shipped, relative])
    assert {found[one.revision] for one in (suite, shipped, relative)} == {"softmax"}
    assert found[other.revision] == family_of(other) != "softmax"


def test_categories_that_share_a_model_are_one_family():
    one, other = (
        Task(name=name, source=SOFTMAX.format("x", size), category=name)
        for name, size in (("reduction", 1), ("norm", 2))
    )
    found = families_of([one, other])
    assert set(found.values()) == {"norm"}


def test_the_same_families_are_split_the_same_way_again():
    families = [f"family{number}" for number in range(20)]
    chosen = split(families, 0.1)
    assert len(chosen) == 2
    assert chosen == split(reversed(families), 0.1) == split(families * 3, 0.1)


def test_few_families_give_no_test_split():
    assert split(["one"], 0.5) == frozenset()
    assert split([], 0.5) == frozenset()


def test_families_for_testing_can_be_named():
    assert split(["a", "b"], 0.0, named=["b"]) == {"b"}
    with pytest.raises(UsageError, match="no task of these runs is of that family; there are a, b"):
        split(["a", "b"], 0.0, named=["c"])


@pytest.mark.parametrize("share", [-0.1, 1.0, 3.0])
def test_a_share_outside_of_the_range_is_refused(share: float):
    with pytest.raises(UsageError, match="--test-share"):
        split(["a"], share)
