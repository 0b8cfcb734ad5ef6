"""Composition of a configuration: the one place that talks to Hydra, and puts its words in ours."""

import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from difflib import get_close_matches
from typing import Any
from unittest.mock import patch

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from evolve.cli.config.build import check_types
from evolve.cli.config.locate import config_dir
from evolve.cli.config.presets import preset_of, search_of, without_retyped
from evolve.cli.config.schema import RunConfig
from evolve.cli.differences import flatten
from evolve.core.errors import EvolveError, UsageError

VERSION_BASE = "1.3"
COMPONENTS = (
    *("archive", "selection", "operators", "schedule", "methods", "knowledge", "trackers"),
)
OPEN = ("llm.models", "llm.roles", "llm.options")  # the user names what is in them
NOISE = ("full_key:", "object_type=", "reference_type=", "See https://")  # of Hydra's messages


def register_schema() -> None:
    """Tell Hydra the types of the root. Idempotent."""
    ConfigStore.instance().store(name="schema", node=RunConfig)


def compose(overrides: Sequence[str]) -> DictConfig:
    """The configuration that `key=value` words give, typed and complete.

    Raises:
        UsageError: a key, an option or a value that cannot be.
    """
    register_schema()
    GlobalHydra.instance().clear()
    with (
        _our_words(overrides),
        hydra.initialize_config_dir(str(config_dir()), version_base=VERSION_BASE),
    ):
        return hydra.compose("config", overrides=_opened(overrides))


def compose_other(name: str, node: type, overrides: Sequence[str]) -> dict[str, Any]:
    """Another configuration than a run's, resolved and as plain data.

    Args:
        name: of its file in `conf/`, and of the verb that takes it.
        node: the types of it; the file names them as `NAME_schema`.
        overrides: `key=value` words.

    Raises:
        UsageError: a key or a value that cannot be.
    """
    ConfigStore.instance().store(name=f"{name}_schema", node=node)
    GlobalHydra.instance().clear()
    with (
        _our_words(overrides, verb=name),
        hydra.initialize_config_dir(str(config_dir()), version_base=VERSION_BASE),
    ):
        config = hydra.compose(name, overrides=[_closed(word) for word in overrides])
        plain = OmegaConf.to_container(
            config, resolve=True, enum_to_str=True, throw_on_missing=True
        )
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def run_with_hydra(words: Sequence[str], job: Callable[[DictConfig], int]) -> int:
    """Hand the words of the command line to Hydra (`-m`, `--cfg`, `--help`), and `job` to it.

    Returns:
        The highest exit status of the jobs; 0 where Hydra only printed something.

    Raises:
        EvolveError, OSError: what a job raised; the first one of a sweep, after its other jobs
            have run.
    """
    register_schema()
    codes = [0]
    errors: list[EvolveError | OSError] = []

    def remembered(config: DictConfig) -> None:
        try:
            codes.append(job(config))
        except (EvolveError, OSError) as error:  # Hydra would print its own words about it
            errors.append(error)

    entry = hydra.main(
        config_path=str(config_dir()), config_name="config", version_base=VERSION_BASE
    )(remembered)
    # argparse wants all overrides in one row.
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    flags = [word for word in words if word not in overrides]
    overrides = _opened(overrides)
    sweeps = bool({"-m", "--multirun"} & {*flags})
    # The sweeper insists on leaving a multirun.yaml somewhere.
    with tempfile.TemporaryDirectory() if sweeps else nullcontext() as litter:
        if litter is not None:
            overrides.append(f"hydra.sweep.dir={litter}")
        argv = ["evolve run", *overrides, *flags]
        environment = {"HYDRA_FULL_ERROR": "1"}  # raise, so that the words are ours
        with (
            _our_words(words),
            patch.object(sys, "argv", argv),
            patch.dict(os.environ, environment),
        ):
            entry()
    if errors:
        raise errors[0]
    return max(codes)


def _opened(words: Sequence[str]) -> list[str]:
    """The words, with what Hydra and a model need.

    `++` before those that may add a name, and with a model operators that ask it, unless the words
    or their preset choose the operators: `llm.model=provider/name` is to be enough.
    """
    words = [_closed(word) for word in words]
    for word in words:
        _refuse_nameless_option(word)
    if not any(word.startswith("search=") for word in words):
        words = [f"search={search_of(words)}", *words]
    opened = [
        f"++{word}" if ".".join(word.partition("=")[0].split(".")[:2]) in OPEN else word
        for word in without_retyped(words)
    ]
    names = {word.lstrip("+").partition("=")[0] for word in words if word != "llm=none"}
    modelled = any(name == "llm" or name.startswith("llm.model") for name in names)
    chosen = names | preset_of(words).options.keys()
    return [*opened, "operators=llm"] if modelled and "operators" not in chosen else opened


def _closed(word: str) -> str:
    """The word without Hydra's `+`, which adds settings, where the schema says all there are.

    Without it Hydra refuses a name that nothing would read.

    Raises:
        UsageError: it takes one away (`~`), which something would look for.
    """
    bare = word.lstrip("+~")
    key = bare.partition("=")[0]
    if key not in COMPONENTS and re.split(r"[.@/]", key)[0] in (*COMPONENTS, "hydra"):
        return word
    if word.startswith("~"):
        raise UsageError(f"{word}: {key} cannot be taken away; where it may be none, {key}=null")
    return bare


def _refuse_nameless_option(word: str) -> None:
    """Raise UsageError for a group that is given a value instead of an option: `archive=null`.

    Hydra fails on it with an exception that is none of its own.
    """
    import yaml

    group, _, option = word.partition("=")
    folder = config_dir() / group
    if not group or not folder.is_dir():
        return
    with suppress(yaml.YAMLError):
        if not isinstance(yaml.safe_load(option), str | list | Mapping):
            raise UsageError(f"{word}: there is no such option; {group} can be: {_options(group)}")


def _options(group: str) -> str:
    return ", ".join(sorted(path.stem for path in (config_dir() / group).glob("*.yaml")))


@contextmanager
def _our_words(words: Sequence[str] = (), verb: str = "run") -> Iterator[None]:
    """Hydra's exceptions about these words as one `UsageError` with the innermost explanation."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_explain(error, words, verb)) from error


def _explain(error: Exception, words: Sequence[str], verb: str) -> str:
    """What, where and the remedy, out of an exception that may wrap the one that knows."""
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        quoted = shlex.quote(f'{key}="{value}"')
        return f"{error.override}: it cannot be read; with both kinds of quotes it can: {quoted}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"{group}={option}: there is no such option; {group} can be: {_options(group)}"
    several = next((word for word in words if word.startswith("search=[")), "")
    if several and str(error).startswith("In 'search/"):
        return f"{several}: these do not go together; take one of them, or another order"
    known = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(known, MissingMandatoryValue):
        return f"{known.full_key} is not set; give {known.full_key}=..."
    if isinstance(known, ConfigKeyError | ConfigAttributeError):
        near = _nearest(str(known.full_key)) if verb == "run" else ""
        meant = f"did you mean {near}? " if near else ""
        return (
            f"{known.full_key}: there is no such setting; {meant}"
            f"`evolve {verb} --help` lists them, `evolve --help` says what is a --flag"
        )
    if "is not a ListConfig" in str(known) and isinstance(known, OmegaConfBaseException):
        given = {word.partition("=")[0]: word.partition("=")[2] for word in words}
        value = given.get(str(known.full_key), "...")
        return f"{known.full_key} is a list; write {known.full_key}=[{value}]"
    if isinstance(known, ConfigTypeError) and "with ListConfig" in str(known):
        return f"{known.full_key} holds settings by name; write {known.full_key}.NAME=..."
    where = f"{known.full_key}: " if isinstance(known, OmegaConfBaseException) else ""
    lines = [line.strip() for line in str(known).splitlines()]
    return where + "; ".join(line for line in lines if line and not line.startswith(NOISE))


def _nearest(key: str) -> str:
    """The setting that may be meant by a name that is none, or nothing."""
    plain = OmegaConf.to_container(OmegaConf.structured(RunConfig), enum_to_str=True)
    names = [name for name, _ in flatten(plain)]
    ends = [name for name in names if name.endswith(f".{key}")]
    near = ends or get_close_matches(key, names, n=1, cutoff=0.8)
    return near[0] if near else ""


def to_plain(config: DictConfig) -> dict[str, Any]:
    """Resolved plain data, whose components' settings have the types that their classes ask for.

    In components and `llm`, what comes from the environment keeps its `${oc.env:...}` spelling
    until they are built: secrets come from there, and this is what the database stores.

    Raises:
        UsageError: a mandatory value is missing, or one has the wrong type.
    """
    with _our_words():
        written = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
        resolved = OmegaConf.to_container(
            config, resolve=True, enum_to_str=True, throw_on_missing=True
        )
    assert isinstance(written, dict)
    assert isinstance(resolved, dict)
    plain = {str(key): value for key, value in resolved.items()}
    for name in (*COMPONENTS, "llm"):
        plain[name] = _storable(written[name], resolved[name])
    _check_lists(plain)
    for name in ("archive", "selection", "schedule", "knowledge"):
        check_types(plain[name], name)
    for group in ("operators", "trackers"):
        for name, node in plain[group].items():
            if node is not None:
                ours = ("weight",) if group == "operators" else ()
                check_types(node, f"{group}.{name}", ours=ours)
    return plain


def _check_lists(plain: Mapping[str, Any]) -> None:
    """Raise UsageError for lists within lists, which OmegaConf takes for lists of anything."""
    for group, name, kind, example in (
        ("", "initial", str, "[mine.py,other.py]"),
        ("sandbox", "read", str, "[/data,/models]"),
        ("cuda", "include", str, "[cutlass/include]"),
        ("cuda", "flags", str, "[-O3,--use_fast_math]"),
        ("device", "ids", int, "[0,1]"),
    ):
        value = (plain[group] if group else plain)[name] or ()
        if not all(isinstance(each, kind) for each in value):
            full = f"{group}.{name}" if group else name
            raise UsageError(f"{full}={value} cannot be; write e.g. {full}={example}")


def _storable(written: Any, resolved: Any) -> Any:
    if isinstance(written, str) and "oc.env" in written:
        return written
    if isinstance(written, Mapping) and isinstance(resolved, Mapping):
        return {str(key): _storable(written[key], value) for key, value in resolved.items()}
    if isinstance(written, list) and isinstance(resolved, list):
        return [_storable(old, new) for old, new in zip(written, resolved, strict=True)]
    if isinstance(resolved, float) and not math.isfinite(resolved):
        return str(resolved)  # JSON has no infinity
    return resolved
