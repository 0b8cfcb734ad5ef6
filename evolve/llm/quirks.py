"""Parameters, roles and lengths that an endpoint refuses, learned from its errors.

Servers differ in them, and say so in an error. If the error names a remedy, or a limit, the request
is sent again in another form, and so are all later ones. `tests/llm/endpoint_replies` names the
sources of the errors that are recognised here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolve.llm.faults import Fault, FaultKind

MIN_ANSWER = 512  # tokens: with less room than this a prompt counts as too long
LIMITS = ("max_tokens", "max_completion_tokens")  # two names of the bound on an answer
_LIMIT = re.compile(rf"\b({'|'.join(LIMITS)})\b")
DROPPED = (
    *("temperature", "top_p", "seed", "stop", "reasoning_effort", "stream_options"),
    *("logprobs", "return_token_ids"),
)
_MARGIN = 16  # tokens that a server adds by itself
_MIN_RATIO = 0.5  # of a count to our estimate, which is rather too high
_MORE = 1.2  # than a count that is a lower bound, or turned out too low

_REFUSED = re.compile(
    r"(un|not |n.t )support|unrecognized|unknown|unexpected|extra.(inputs|forbidden)|"
    r"not (permitted|allowed|accept)|(does not|only) accept|deprecated|only the default|"
    r"(may|can|must) only be|cannot (both )?be|use only one|not compatible|not available|"
    r"unsupported|only \S{1,20} (is|are) allowed|must be (set to )?1\b|"
    r"invalid.(parameter|argument)|property .{0,60}is missing from",
    re.IGNORECASE,
)
_SYSTEM = re.compile(
    r"system (role|message|instruction|prompt)|role.{0,20}system|developer instruction|"
    r"roles must alternate|only user and assistant roles",
    re.IGNORECASE,
)
_ANSWER_LIMITS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), less)
    for pattern, less in (
        (r"max_tokens: \d+ > (\d+)", 0),
        (r"range of max_\w*tokens is \[\d+, ?(\d+)\]", 0),
        (r"at most (\d+) completion tokens", 0),
        (r"maximum tokens you requested exceeds the model limit of (\d+)", 0),
        (r"\bmax_\w*tokens\b.{0,60}?(?:less than or equal to|at most|<=)\W*(\d+)", 0),
        (r"\bmax_\w*tokens\b.{0,60}? between \d+ and (\d+)", 0),
        (r"max_?output_?tokens.{0,120}?\d+ \(inclusive\) to (\d+) \(exclusive\)", 1),
    )
)
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"maximum context length (?:of|is)\D{0,8}(\d+)",
        r"(\d+) maximum context length",
        r"\bn_ctx\W{1,5}(\d+)",
        r"context length \((\d+)",
        r"context length of (?:only )?(\d+)",
        r"maximum allowed length \((\d+)",
        r"\d+ tokens > (\d+) maximum",
        r"context limit: \d+ \+ \d+ > (\d+)",
        r"available context size \((\d+)",
        r"maximum number of tokens allowed \((\d+)",
        r"max_new_tokens. must be <= (\d+)",
        r"max size: (\d+) tokens",
        r"less than (\d+) tokens",
        r"\(TPM\): Limit (\d+)",
        r"context (?:window|length|size)\D{0,24}(\d{3,})",
    )
)
_PROMPTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\((\d+) in the messages",
        r"prompt contains (?:at least )?(\d+)",
        r"(\d+) tokens? (?:from|in) the (?:input )?(?:messages|prompt)",
        r"messages resulted in (\d+)",
        r"\bn_prompt_tokens\W{1,5}(\d+)",
        r"(?:input|input length|request|token count) \((\d+)",
        r"keep the first (\d+)",
        r"n_keep: (\d+)",
        r"prompt is too long: (\d+)",
        r"\((\d+) of text input",
        r"given: (\d+)",
        r"context limit: (\d+) \+",
    )
)
_TOGETHER = (re.compile(r"\brequested (\d+)", re.IGNORECASE),)  # prompt and bound
_LOOKED_AT = frozenset({FaultKind.BAD_REQUEST, FaultKind.TOO_LONG, FaultKind.OVERLOADED})


@dataclass(frozen=True, slots=True)
class Quirks:
    """Limits and refusals of an endpoint, as far as they are known.

    Attributes:
        left_out: names of parameters that are not sent.
        limit: by which name the bound on an answer is sent; None is LiteLLM's choice.
        max_answer: the largest bound on an answer.
        window: tokens of prompt and answer together.
        prompt_ratio: tokens of prompts, as the endpoint counts them, over our estimate.
        merges_system: whether the system's message goes in front of the user's.
    """

    left_out: frozenset[str] = field(default_factory=frozenset)
    limit: str | None = None
    max_answer: int | None = None
    window: int | None = None
    prompt_ratio: float = 1.0
    merges_system: bool = False

    def bound(self, wanted: int, estimate: int) -> int:
        """The bound on the answer to send: the wanted one, as far as there is room.

        Args:
            wanted: tokens of the answer that the request allows.
            estimate: about the tokens of its prompt.
        """
        room = wanted if self.window is None else self.window - self.prompt(estimate) - _MARGIN
        return max(min(wanted, room, self.max_answer or wanted), 1)

    def prompt(self, estimate: int) -> int:
        """Tokens of a prompt as the endpoint counts them."""
        return int(estimate * self.prompt_ratio)

    def arguments(self, given: Mapping[str, Any], estimate: int) -> dict[str, Any]:
        """LiteLLM's arguments in the form that is taken."""
        body = dict(given.get("extra_body") or {})
        bound = self.bound(given["max_tokens"], estimate)
        sent = dict(given) | {"max_tokens": bound, "messages": self.messages(given["messages"])}
        if self.limit is not None:  # as it stands: LiteLLM may translate it to the refused one
            del sent["max_tokens"]
            body[self.limit] = bound
        sent = {name: value for name, value in sent.items() if name not in self.left_out}
        body = {name: value for name, value in body.items() if name not in self.left_out}
        return sent | ({"extra_body": body} if body or "extra_body" in sent else {})

    def news(self, before: "Quirks") -> str:
        """The difference from an earlier state, as a phrase."""
        parts = [f"{name} is left out" for name in sorted(self.left_out - before.left_out)]
        if self.limit != before.limit:
            parts.append(f"the bound on an answer is sent as {self.limit}")
        if self.max_answer != before.max_answer:
            parts.append(f"an answer may have {self.max_answer} tokens")
        if self.window != before.window:
            parts.append(f"prompt and answer together may have {self.window} tokens")
        if self.merges_system:
            parts.append("the system's message goes in front of the user's")
        return ", ".join(parts) or "an answer is given less room"

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages in the roles that are taken."""
        if not self.merges_system:
            return [dict(message) for message in messages]
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        rest = [dict(message) for message in messages if message["role"] != "system"]
        if system and rest and rest[0]["role"] == "user":
            rest[0]["content"] = f"{system}\n\n{rest[0]['content']}"
        elif system:
            rest.insert(0, {"role": "user", "content": system})
        return rest


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal, and the request that it is for."""

    quirks: Quirks
    fault: Fault
    sent: Mapping[str, Any]
    estimate: int


def learned(quirks: Quirks, fault: Fault, sent: Mapping[str, Any], estimate: int) -> Quirks | None:
    """Knowledge after a refusal; None if it names nothing that can be sent in another form.

    Args:
        quirks: the knowledge with which the request was sent.
        fault: the refusal.
        sent: the arguments of the request.
        estimate: about the tokens of its prompt.
    """
    if fault.kind not in _LOOKED_AT:
        return None
    refusal = _Refusal(quirks, fault, sent, estimate)
    for find in (_window, _answer_limit, _limit, _roles, _names):
        found = find(refusal)
        if found is not None and found != quirks:
            return found
    return None


def window_in(text: str) -> int | None:
    """How many tokens an endpoint says that it holds."""
    return _number(_WINDOWS, text)


def _window(refusal: _Refusal) -> Quirks | None:
    """A window that leaves room for an answer to this prompt."""
    quirks, text = refusal.quirks, f"{refusal.fault.words} {refusal.fault.body}"
    window = _number(_WINDOWS, text) if refusal.fault.kind is FaultKind.TOO_LONG else None
    if window is None:
        return None
    sent, estimate = refusal.sent, refusal.estimate
    bound = sent.get("max_tokens") or sent["extra_body"][quirks.limit]
    counted = _number(_PROMPTS, text) or max((_number(_TOGETHER, text) or 0) - bound, 0)
    counted = counted * (_MORE if "at least" in refusal.fault.words else 1)
    least = _MIN_RATIO if quirks.window is None and counted else quirks.prompt_ratio
    ratio = max(least, counted / max(estimate, 1))
    if (window, ratio) == (quirks.window, quirks.prompt_ratio):  # and still it does not fit
        ratio *= _MORE
    found = replace(quirks, window=window, prompt_ratio=ratio)
    has_room = window - found.prompt(estimate) - _MARGIN >= MIN_ANSWER
    return found if has_room and found.bound(bound, estimate) < bound else None


def _answer_limit(refusal: _Refusal) -> Quirks | None:
    for pattern, less in _ANSWER_LIMITS:
        if (found := pattern.search(refusal.fault.words)) and int(found[1]) - less >= MIN_ANSWER:
            return replace(refusal.quirks, max_answer=int(found[1]) - less)
    return None


def _limit(refusal: _Refusal) -> Quirks | None:
    """The other name of the bound on an answer. Each is tried once."""
    # "max_tokens is not supported, use max_completion_tokens": the first is the refused one.
    named = _LIMIT.search(refusal.fault.words)
    if not named or not _REFUSED.search(refusal.fault.words) or refusal.quirks.limit is not None:
        return None
    return replace(refusal.quirks, limit=LIMITS[1 - LIMITS.index(named[0])])


def _roles(refusal: _Refusal) -> Quirks | None:
    has_system = any(message["role"] == "system" for message in refusal.sent["messages"])
    is_refused = has_system and _SYSTEM.search(refusal.fault.words)
    return replace(refusal.quirks, merges_system=True) if is_refused else None


def _names(refusal: _Refusal) -> Quirks | None:
    """Parameters that are refused by name; of two that exclude each other, the later one."""
    quirks, words, sent = refusal.quirks, refusal.fault.words, refusal.sent
    asked = {**sent, **(sent.get("extra_body") or {})}
    named = [n for n in DROPPED if n in asked and _spelled(n).search(words)]
    if not named or not _REFUSED.search(words):
        return None
    exclusive = len(named) > 1 and re.search(r"both|only one", words)
    return replace(quirks, left_out=quirks.left_out | set(named[1:] if exclusive else named))


def _spelled(name: str) -> re.Pattern[str]:
    """A parameter's name as endpoints spell it: `reasoning_effort`, `reasoningEffort`."""
    return re.compile(rf"\b{name.replace('_', '_?')}\b", re.IGNORECASE)


def _number(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    found = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
    return int(found[1]) if found else None
