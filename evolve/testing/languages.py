"""The requirements for every language of kernels, for pytest: subclass, give it and a program."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from evolve.core.devices import device_kinds
from evolve.languages.base import Language
from evolve.languages.descriptors import (
    COMPUTE_PATTERN,
    MEMORY_ACCESS,
    PARALLELISM,
    PRECISION_PATH,
)
from evolve.languages.registry import detect_language, languages, languages_in, refusal
from evolve.languages.syntax import parsed

HOSTILE = ("", "def broken(:\n", "(" * 20_000, "f" + "()" * 20_000, "\0", "@" * 1000, "x = " * 9000)


class LanguageConformance:
    """The invariants of `evolve.languages.base.Language`.

    Attributes:
        language: the one to test.
        kernel: the text of an honest program in it.
    """

    language: Language
    kernel: str

    def test_it_is_known_by_its_name(self) -> None:
        assert languages()[self.language.name] is self.language

    def test_a_program_in_it_is_recognised_and_is_in_no_other(self) -> None:
        assert detect_language(self.kernel) is self.language
        assert languages_in(self.kernel) == (self.language,)

    def test_comments_and_strings_show_nothing(self) -> None:
        commented = "".join(f"# {line}\n" for line in self.kernel.splitlines())
        assert not languages_in(commented)
        assert not languages_in(f"TEXT = {self.kernel!r}\n")

    def test_hostile_text_is_in_it_never_and_raises_nothing(self) -> None:
        for text in HOSTILE:
            assert not self.language.finds(parsed(text))
            self.language.describe(text)

    def test_descriptors_are_of_the_known_words(self) -> None:
        for text in (self.kernel, *HOSTILE):
            found = self.language.describe(text)
            assert found["memory_access"] in MEMORY_ACCESS
            assert found["parallelism"] in PARALLELISM
            assert found["compute_pattern"] in COMPUTE_PATTERN
            assert found["precision_path"] in PRECISION_PATH
        kernels = self.language.describe(self.kernel)["kernels"]
        assert isinstance(kernels, float)
        assert kernels >= 1.0

    def test_a_prompt_says_how_kernels_are_written_and_what_may_be_imported(self) -> None:
        assert self.language.title
        assert self.language.contract.startswith("- Kernels in ")
        assert not self.language.contract.endswith("\n")
        assert self.language.title in self.language.contract

    def test_some_device_runs_it_and_the_others_name_the_remedy(self) -> None:
        kinds = device_kinds().values()
        assert any(self.language.is_timed_on(kind) for kind in kinds)
        for kind in kinds:
            why = refusal(self.language, kind)
            assert bool(why) is not self.language.runs_on(kind)
            if why:
                assert all(f"device={name}" in why for name in self.language.devices)
                assert f"for device={kind.name} write " in why
                assert "\n" not in why

    def test_variables_are_for_interpreters_alone(self) -> None:
        for kind in device_kinds().values():
            is_interpreted = self.language.runs_on(kind) and not self.language.is_timed_on(kind)
            assert bool(self.language.variables_on(kind)) is is_interpreted

    def test_caches_are_the_builds_own_while_it_is_made_and_private_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build, own = tmp_path / "build", tmp_path / "own"
        build.mkdir()
        own.mkdir()
        monkeypatch.chdir(own)
        made = self.language.caches(build, True)
        for place in made.values():
            assert Path(place).is_relative_to(build)
            (Path(place) / "compiled").write_text("kernel")
        found = self.language.caches(build, False)
        assert found.keys() == made.keys()
        for place in found.values():
            assert Path(place).is_relative_to(own)
            assert (Path(place) / "compiled").read_text() == "kernel"
        for place in self.language.caches(None, False).values():
            assert Path(place).is_relative_to(own)

    def test_stubs_replace_what_is_there(self) -> None:
        if self.language.stubs is None:
            pytest.skip("it launches nothing that can be stubbed")
        for owner, attributes in self.language.stubs([]):
            for name, value in attributes.items():
                assert callable(getattr(owner, name))
                assert callable(value)

    def test_packages_that_a_search_needs_are_installed(self) -> None:
        assert all(find_spec(each.module) for each in self.language.packages if each.needed)

    def test_nothing_of_the_process_changes_by_being_asked(self) -> None:
        before = dict(os.environ)
        self.language.describe(self.kernel)
        for kind in device_kinds().values():
            self.language.variables_on(kind)
        assert dict(os.environ) == before
