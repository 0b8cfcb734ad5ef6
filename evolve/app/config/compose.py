"""Composition of a configuration: the only place that calls Hydra, and rewords its messages."""

import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from evolve.app.config.build import check_types
from evolve.app.config.diff import flatten
from evolve.app.config.locate import config_dir
from evolve.app.config.presets import is_search, is_shipped, preset_of, search_of, without_retyped
from evolve.app.config.schema import RunConfig
from evolve.app.config.submission import (
    PlainJob,
    Returned,
    launcher_of,
    results,
    with_defaults,
)
from evolve.app.config.suggest import option_meant, setting_meant
from evolve.core.errors import EvolveError, UsageError
from evolve.worker.base.scratch import ScratchFolder

VERSION_BASE = "1.3"
COMPONENTS = (
    *("archive", "selection", "operators", "schedule", "methods", "knowledge", "trackers"),
)
OPEN = ("llm.models", "llm.roles", "llm.options")  # the user names their entries
_UNCONVERTED = re.compile(
    r"Value '(?P<value>.*)' (of type .* could not be converted to|is not a valid) (?P<kind>\w+)"
)
_KINDS = {
    "Integer": "a whole number, e.g. 400",
    "Float": "a number, e.g. 1.5",
    "bool": "true or false",
}
NOISE = ("full_key:", "object_type=", "reference_type=", "See https://")  # of Hydra's messages


@cache
def register_schema() -> None:
    """Tell Hydra the types of the root. Idempotent, and a tenth of a composition."""
    ConfigStore.instance().store(name="schema", node=RunConfig)


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration that `key=value` words give, complete and as plain data (`to_plain`).

    Raises:
        UsageError: a key, an option or a value that cannot be.
    """
    return to_plain(_composed(overrides), overrides)


def _composed(overrides: Sequence[str]) -> DictConfig:
    register_schema()
    with _our_words(overrides), _hydra_to_itself():
        return hydra.compose("config", overrides=_opened(overrides))


def compose_other(name: str, node: type, overrides: Sequence[str]) -> dict[str, Any]:
    """Another configuration than a run's, resolved and as plain data.

    Args:
        name: of its file in `conf/`, and of the verb that takes it.
        node: the types of it; the file names them as `NAME_schema`.
        overrides: `key=value` words.

    Raises:
        UsageError: a word, a key or a value that cannot be.
    """
    if odd := [word for word in overrides if "=" not in word or word.startswith("-")]:
        raise UsageError(f"'{odd[0]}' is not key=value; `evolve {name} --help` lists the keys")
    ConfigStore.instance().store(name=f"{name}_schema", node=node)
    with _our_words(overrides, verb=name, node=node), _hydra_to_itself():
        closed = [_closed(word) for word in overrides]
        _refuse_part_of_a_value(closed, name, node)
        config = hydra.compose(name, overrides=closed)
        plain = OmegaConf.to_container(
            config, resolve=True, enum_to_str=True, throw_on_missing=True
        )
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@contextmanager
def _hydra_to_itself() -> Iterator[None]:
    """Hydra, initialised, without its state of this process: that may be a caller's own."""
    before, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with hydra.initialize_config_dir(str(config_dir()), version_base=VERSION_BASE):
            yield
    finally:
        GlobalHydra.instance().hydra = before  # of another instance: Hydra makes a new one


def run_with_hydra(words: Sequence[str], job: PlainJob, submitted: PlainJob | None = None) -> int:
    """Hand the words of the command line to Hydra (`-m`, `--cfg`, `--help`), and `job` to it.

    With `hydra/launcher=` other processes execute `submitted`, a function of a module, instead.

    Returns:
        The highest exit status of the jobs; 0 if Hydra only printed something.

    Raises:
        EvolveError, OSError: raised by a job; the first one of a sweep, after its other jobs have
            run.
    """
    flags = [word for word in words if "=" not in word or word.startswith("-")]
    if not flags and not any(word.lstrip("+~").startswith("hydra") for word in words):
        with _our_words(words):  # Hydra itself composes twice: 0.2 s more
            return job(compose(words))
    register_schema()
    if launcher := launcher_of(words):
        if submitted is None:
            raise UsageError(f"hydra/launcher={launcher} is for searches; leave it out")
        return _submit(words, launcher, submitted)
    codes = [0]
    errors: list[EvolveError | OSError] = []

    def remembered(config: DictConfig) -> None:
        try:
            codes.append(job(to_plain(config, words)))
        except (EvolveError, OSError) as error:  # Hydra would print its own words about it
            errors.append(error)

    entry = hydra.main(
        config_path=str(config_dir()), config_name="config", version_base=VERSION_BASE
    )(remembered)
    # argparse wants all overrides in one row.
    overrides = _opened([word for word in words if word not in flags])
    sweeps = bool({"-m", "--multirun"} & {*flags})
    # The sweeper insists on leaving a multirun.yaml somewhere.
    with ScratchFolder("sweep") if sweeps else nullcontext() as litter:
        if litter is not None:
            overrides.append(f"hydra.sweep.dir={litter}")
        argv = ["evolve run", *overrides, *flags]
        environment = {"HYDRA_FULL_ERROR": "1"}  # raise with a better message
        with (
            _our_words(words),
            patch.object(sys, "argv", argv),
            patch.dict(os.environ, environment),
        ):
            entry()
    if errors:
        raise errors[0]
    return max(codes)


def _submit(words: Sequence[str], launcher: str, job: PlainJob) -> int:
    """Let a launcher execute the jobs of a sweep; the highest of their exit statuses."""
    overrides = _opened([word for word in words if "=" in word and not word.startswith("-")])
    overrides = with_defaults(overrides, launcher)
    with _our_words(words), _hydra_to_itself():
        initialised = GlobalHydra.instance().hydra
        assert initialised is not None
        sweep = partial(initialised.multirun, with_log_configuration=False)
        return max(results(lambda: sweep("config", Returned(job, words), overrides)))


def _opened(words: Sequence[str]) -> list[str]:
    """The words, with the additions that Hydra and a model need.

    `++` before those that may add a name, and with a model operators that ask it, unless the words
    or their preset choose the operators: `llm.model=provider/name` is to be enough.
    """
    words = [_closed(word) for word in words]
    for word in words:
        _refuse_nameless_option(word)
    _refuse_part_of_a_value(words)
    if not any(map(is_search, words)):
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
    """The word without Hydra's `+`, which adds settings, if the schema says all there are.

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


def _refuse_part_of_a_value(
    words: Sequence[str], verb: str = "run", node: type = RunConfig
) -> None:
    """Raise UsageError for a name within a setting that is a value: `task.size=tiny`.

    Hydra would first make an empty mapping of the value, and complain of that.
    """
    values = _values_of(node)
    for word in words:
        key, _, given = word.partition("=")
        parts = key.split(".")
        heads = (".".join(parts[:end]) for end in range(1, len(parts)))
        if head := next((name for name in heads if name in values), ""):
            near = setting_meant(parts[-1], [*values], _groups() if node is RunConfig else [])
            remedy = f"{near or 'leave it out'};"
            if near and " " not in near:
                remedy = f"did you mean {near if '=' in near else f'{near}={given}'}?"
            raise UsageError(
                f"{word}: {head} takes {values[head]} and has no settings of its own; {remedy} "
                f"`evolve {verb} --help` lists the settings"
            )


@cache
def _values_of(node: type, prefix: str = "") -> dict[str, str]:
    """The settings that hold a value, by dotted name, with the way to write it."""
    found: dict[str, str] = {}
    kinds = get_type_hints(node)
    for each in fields(node):
        kind, name = kinds[each.name], f"{prefix}{each.name}"
        if is_dataclass(kind):
            assert isinstance(kind, type)
            found |= _values_of(kind, f"{name}.")
        elif kind is not Any and get_origin(kind) is not dict:
            is_list = list in (get_origin(kind), *map(get_origin, get_args(kind)))
            found[name] = f"a list, {name}=[...]," if is_list else f"one value, {name}=...,"
    return found


def _options(group: str) -> str:
    return ", ".join(sorted(path.stem for path in (config_dir() / group).glob("*.yaml")))


@contextmanager
def _our_words(
    words: Sequence[str] = (), verb: str = "run", node: type = RunConfig
) -> Iterator[None]:
    """Hydra's exceptions about these words as one `UsageError` with the innermost explanation."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_explain(error, words, verb, node)) from error


def _explain(error: Exception, words: Sequence[str], verb: str, node: type) -> str:
    """The error, its place and the remedy, out of an exception that may wrap the original."""
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        quoted = shlex.quote(f'{key}="{value}"')
        return f"{error.override}: it cannot be read; with both kinds of quotes it can: {quoted}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _no_option(error.missing_cfg_file, words)
    several = next((word for word in words if word.startswith("search=[")), "")
    if several and str(error).startswith("In 'search/"):
        return f"{several}: these do not go together; take one of them, or another order"
    known = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(known, MissingMandatoryValue):
        return f"{known.full_key} is not set; give {known.full_key}=..."
    if isinstance(known, ConfigKeyError | ConfigAttributeError):
        return _no_setting(str(known.full_key), words, verb, node)
    if "is not a ListConfig" in str(known) and isinstance(known, OmegaConfBaseException):
        given = {word.partition("=")[0]: word.partition("=")[2] for word in words}
        value = given.get(str(known.full_key), "...")
        return f"{known.full_key} is a list; write {known.full_key}=[{value}]"
    if isinstance(known, ConfigTypeError) and "with ListConfig" in str(known):
        return f"{known.full_key} holds settings by name; write {known.full_key}.NAME=..."
    if (kind := _UNCONVERTED.search(str(known))) and isinstance(known, OmegaConfBaseException):
        asked = _KINDS.get(kind["kind"], kind["kind"])
        return f"{known.full_key}={kind['value']}: it is {asked}"
    if str(known).startswith("Cannot convert '") and isinstance(known, OmegaConfBaseException):
        return f"{known.full_key} takes one value; write {known.full_key}=..."
    where = f"{known.full_key}: " if isinstance(known, OmegaConfBaseException) else ""
    lines = [line.strip() for line in str(known).splitlines()]
    return where + "; ".join(line for line in lines if line and not line.startswith(NOISE))


def _no_option(file: str, words: Sequence[str]) -> str:
    """That a group has no such option, with the nearest and all others; `file` is GROUP/OPTION."""
    typed = (word.partition("=") for word in words)
    named = ((group, option) for group, _, option in typed if f"{group}/{option}" == file)
    before, _, after = file.rpartition("/")
    group, option = next(named, (before, after))
    options = _options(group)
    near = option_meant(group, option, options.split(", "))
    meant = f"did you mean {near}? " if near else ""
    return f"{group}={option}: there is no such option; {meant}{group} can be: {options}"


def _no_setting(key: str, words: Sequence[str], verb: str, node: type) -> str:
    """That there is no such setting, with the one that was probably meant.

    Hydra says which part of the typed key it failed at; the rest of it helps to guess.
    """
    typed = (word.partition("=")[0].lstrip("+~") for word in words)
    whole = next((name for name in typed if name == key or name.startswith(f"{key}.")), key)
    near = setting_meant(whole, *_known(node))
    meant = f"{near}; " if " " in near else f"did you mean {near}? " if near else ""
    return (
        f"{whole}: there is no such setting; {meant}"
        f"`evolve {verb} --help` lists them, `evolve --help` says what is a --flag"
    )


def _known(node: type) -> tuple[list[str], list[str]]:
    """All settings by dotted name, and the configuration groups."""
    if node is not RunConfig:
        plain = OmegaConf.to_container(OmegaConf.structured(node), enum_to_str=True)
        return [name for name, _ in flatten(plain)], []
    plain = OmegaConf.to_container(_composed(["task=any", "search=single"]), enum_to_str=True)
    return [name for name, _ in flatten(plain)], _groups()


def _groups() -> list[str]:
    """The configuration groups."""
    folders = (folder.name for folder in config_dir().iterdir() if folder.is_dir())
    return [name for name in folders if name != "hydra"]


def to_plain(config: DictConfig, words: Sequence[str]) -> dict[str, Any]:
    """Resolved plain data, whose components' settings have the types that their classes ask for.

    `preset` is the preset that the typed `words` choose; in a sweep over presets, that of the job.
    In components and `llm`, values from the environment keep their `${oc.env:...}` spelling until
    they are built: secrets come from there, and the database stores this spelling.

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
    plain["preset"] = search_of(words)
    if HydraConfig.initialized() and not is_shipped(plain["preset"]):  # several, or a user's own
        plain["preset"] = HydraConfig.get().runtime.choices.get("search", plain["preset"])
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
