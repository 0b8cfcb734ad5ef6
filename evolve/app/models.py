"""The models of a run, built from its configuration."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evolve.app.config.diff import flatten
from evolve.app.config.schema import Models
from evolve.app.config.upgrade import complete
from evolve.app.database import location_of
from evolve.core.errors import UsageError
from evolve.core.model import LanguageModel
from evolve.core.run_store import RunStore
from evolve.search.termination import parse_duration
from evolve.store import Store

if TYPE_CHECKING:
    from evolve.llm import LiteLLM

LIMITS = ("tokens", "usd")
WHY_IDLE = (
    "no model is configured (llm.model=provider/name), so that nothing spends tokens or money"
)
SETTINGS = (
    *("model", "models", "roles", "api_base", "key_variable", "price", "context_tokens"),
    *("max_tokens", "temperature", "top_p", "reasoning_effort", "stream", "trace", "options"),
    *("deadline_s", "slots", "requests_per_minute", "tokens_per_minute"),
)
COMMAND_SETTINGS = (
    *("command", "environment", "model", "price", "context_tokens", "max_tokens", "deadline_s"),
    "slots",
)
AGENT = "agent"
AGENT_SETTINGS = ("command", "verdicts", "usd", "slots", "environment", "read")
PRICES = ("prompt", "completion", "cached")


def build_model(config: Mapping[str, Any], *, run: str | None = None) -> LanguageModel | None:
    """Who answers operators; None if no model is configured. Sends nothing.

    `run` is the name of the stored run that is to go on so; it cannot replay itself.

    Raises:
        UsageError: settings that cannot be, a key among them (they are stored and shown), or a USD
            budget for a model without a price.
    """
    _refuse_keys(config["llm"])
    _refuse_keys(config["agent"], "agent")
    kind, recorded = config["llm"]["kind"], config["llm"]["run"]
    if kind == "replay":
        if config["agent"]["command"]:
            raise UsageError(
                "llm=replay with agent.command: programs that an agent tries are not in the record "
                "of its answers; leave agent.command and operators=agent out"
            )
        return _replay(config, recorded, run)
    if recorded is not None:
        raise UsageError(
            f"llm.run={recorded} has no effect without llm=replay; leave it out, or take that"
        )
    model = _with_agent(config, _live(config["llm"]))
    if model is not None:
        _refuse_unpriced(config, model)
    return model


def key_notes(config: Mapping[str, Any], *, is_new: bool = True) -> Iterator[str]:
    """A line for every model whose key is not where it usually is: said before minutes of work.

    Args:
        config: of the run.
        is_new: whether its models have not answered yet, so that their names may be wrong.

    Raises:
        UsageError: a model of a public provider has no key, or is none of its models.
    """
    from evolve.app.agent.combined import CombinedModel
    from evolve.app.agent.model import AgentModel
    from evolve.llm import CommandModel, LiteLLM

    model = None if config["llm"]["kind"] == "replay" else build_model(config)
    for each in model.members if isinstance(model, CombinedModel) else (model,):
        if isinstance(each, CommandModel | AgentModel):
            each.require_program()
        elif isinstance(each, LiteLLM):
            yield from _keys_of(each, is_new=is_new)


def _keys_of(model: "LiteLLM", *, is_new: bool) -> Iterator[str]:
    from evolve.llm.doctor import key_finding, refuse_unlisted, refuse_without_key

    for settings in model.settings:
        if is_new:
            refuse_unlisted(settings)
        refuse_without_key(settings)
        state, name, what = key_finding(settings)
        if state == "note":
            yield f"model {name}: {what}, unless its calls need none"


def has_model(config: Mapping[str, Any]) -> bool:
    """Whether there is a model, or a record of one, for operators to ask."""
    settings = config["llm"]
    is_named = bool(settings["model"] or settings["models"])
    has_agent = bool(config["agent"]["command"])
    return is_named or has_agent or settings["kind"] in ("replay", "command")


def idle_limits(config: Mapping[str, Any]) -> list[str]:
    """Limits that are set, and that nothing comes nearer to without a model."""
    return [] if has_model(config) else [name for name, _ in _limits(config)]


def limits_cannot_end(config: Mapping[str, Any]) -> bool:
    """Whether all limits are such that nothing comes nearer to them."""
    limits = {name: limit for name, limit in config["termination"].items() if name != "stop_file"}
    together = _given(limits["all_of"])
    alone = _given(limits) - {"all_of", *LIMITS}
    return not (alone or (together and not together & {*LIMITS}))


def _given(limits: Mapping[str, Any]) -> set[str]:
    return {name for name, limit in limits.items() if limit is not None}


def _limits(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The limits on models' use that are set, by dotted name."""
    for name, limit in flatten(config["termination"], "termination"):
        if limit is not None and name.rpartition(".")[2] in LIMITS:
            yield name, limit


def _live(given: Mapping[str, Any]) -> LanguageModel | None:
    from omegaconf import OmegaConf

    from evolve.llm import LiteLLM

    if given["kind"] == "command":
        return _command(given)
    for name in ("command", "environment"):
        if given[name]:
            raise UsageError(
                f"llm.{name}={given[name]} has no effect without llm=command; leave it out, or "
                "take that"
            )
    settings = {name: given[name] for name in SETTINGS}
    settings["price"] = {name: given["price"][name] for name in PRICES}
    if given["kind"] == "ensemble" and not settings["models"]:
        raise UsageError(
            "llm=ensemble names no model; give each one a name and its provider/name, "
            "e.g. llm.models.fast.model=openai/NAME llm.models.strong.model=anthropic/NAME"
        )
    if settings["model"] == "":
        raise UsageError("llm.model is empty; give it as provider/name, or leave it out")
    if not settings["model"] and not settings["models"]:
        if settings["api_base"]:  # not checked yet: it may hold a password, and is not repeated
            raise UsageError("llm.api_base says where but not what: give llm.model=openai/NAME too")
        return None
    resolved: Any = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)
    return LiteLLM(**resolved)


def _with_agent(config: Mapping[str, Any], model: LanguageModel | None) -> LanguageModel | None:
    """The models with the coding agent that answers the operator `agent`, if there is one.

    Raises:
        UsageError: the operator without a command, a command without the operator, or a value that
            cannot be.
    """
    given = config["agent"]
    settings = {name: given[name] for name in AGENT_SETTINGS}
    deadline_s = parse_duration(given["deadline"])
    has_operator = bool(config["operators"].get(AGENT))
    if not given["command"]:
        if has_operator:
            raise UsageError(
                "operators=agent needs a program: agent.command='claude -p', or codex, gemini, "
                "cursor-agent"
            )
        return model
    if not has_operator:
        raise UsageError(
            f"agent.command={given['command']} has no effect: no operator asks the agent; take "
            "operators=agent"
        )
    from evolve.app.agent.combined import CombinedModel
    from evolve.app.agent.model import AgentModel

    agent = AgentModel(
        name=AGENT,
        deadline_s=deadline_s,
        knowledge=config["knowledge"].get("folders", ()),
        weight=0.0 if model else 1.0,
        **settings,
    )
    return CombinedModel([model, agent]) if model else agent


def _command(given: Mapping[str, Any]) -> LanguageModel:
    """A program as the model.

    Raises:
        UsageError: a setting that cannot be, or has no effect on a program.
    """
    from evolve.llm import CommandModel

    usual = Models()
    for name in SETTINGS:
        if name not in COMMAND_SETTINGS and given[name] != getattr(usual, name):
            raise UsageError(
                f"llm.{name}={given[name]} has no effect with llm=command; give the program "
                "arguments of its own instead, in llm.command"
            )
    settings = {name: given[name] for name in COMMAND_SETTINGS if name != "price"}
    price = {name: given["price"][name] for name in PRICES}
    return CommandModel(**settings, price=price)


def _refuse_keys(given: Mapping[str, Any], group: str = "llm") -> None:
    """Raise UsageError if a key is spelled out, without repeating it; hide all others."""
    from evolve.llm.secrets import hide_taken, literal_secret

    name = literal_secret(given)
    if name and group == "agent":
        raise UsageError(
            f"agent.{name}: keys stay in the environment, for the configuration is stored and "
            "shown; export it there and name the variable in agent.environment"
        )
    if name:
        raise UsageError(
            f"llm.{name}: keys stay in the environment, for the configuration is stored and shown; "
            "export it there and give llm.key_variable=NAME_OF_THE_VARIABLE, or what takes it from "
            f"there: 'llm.{name}=${{oc.env:NAME_OF_THE_VARIABLE}}'"
        )
    hide_taken(given)


def _refuse_unpriced(config: Mapping[str, Any], model: LanguageModel) -> None:
    """Raise UsageError if a limit in USD could not be held."""
    unpriced = [card.name for card in model.models if not card.priced]
    for name, limit in _limits(config):
        if name.endswith("usd") and unpriced:
            where = "llm" if config["llm"]["model"] else f"llm.models.{unpriced[0]}"
            raise UsageError(
                f"{name}={limit} cannot be held: {unpriced[0]} has no known price. Give one in USD "
                f"per million tokens, {where}.price.prompt=... {where}.price.completion=..., "
                "or limit termination.tokens instead"
            )


def _replay(config: Mapping[str, Any], name: str | None, own: str | None) -> LanguageModel:
    from evolve.llm import ReplayModel

    if name is None:
        raise UsageError("llm=replay needs llm.run=RUN: whose recorded answers to give")
    store = Store.open(location_of(config), read_only=True)
    run = store.run(name)
    recorded = _live(_recorded_settings(store, name, own))
    if recorded is None:
        raise UsageError(f"llm.run={name}: that run asked no model; name one that did")
    return ReplayModel(
        recorded,
        lambda key, sample: store.recorded_reply(run.id, key, sample),
        source=f"run {name}",
    )


def _recorded_settings(store: RunStore, name: str, own: str | None) -> Mapping[str, Any]:
    """Of the models behind a run's answers: a replay has answers of its own, and another's models.

    Raises:
        UsageError: the run replays itself, or `own`, be it by way of others.
    """
    names = [own] if own else []
    while name not in names:
        names.append(name)
        settings: Mapping[str, Any] = complete(store.run(name).config)["llm"]
        if settings["kind"] != "replay":
            return settings
        name = settings["run"]
    raise UsageError(
        f"llm=replay goes in a circle, {' replays '.join([*names, name])}: name a run that asked a "
        "model itself, llm.run=RUN, or ask one now, llm=none llm.model=provider/NAME"
    )
