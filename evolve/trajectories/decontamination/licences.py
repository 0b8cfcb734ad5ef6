"""The licence of a task file, and whether it allows training."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

_TAG = re.compile(
    r"""SPDX-License-Identifier\s*:[\s"'*/\#]*
    ((?:[^\n"'*]*\b(?:AND|OR|WITH)[ \t]*\n[ \t*/\#]*)*  # lines that end in an operator
    [^\n"'*]*)""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[()]|[A-Za-z0-9](?:[\w.+:-]*[\w+])?")  # parentheses, identifiers, operators
_OPERATORS = ("AND", "OR", "WITH")

UNKNOWN = "unknown"

FORBIDDING = (
    "*-NC-*",
    "*-NC",
    "*-ND-*",
    "*-ND",
    "LicenseRef-*",
    "DocumentRef-*",
    "PolyForm-*",
    "BUSL-*",
    "proprietary",
    "UNLICENSED",
    "NONE",
)
"""SPDX identifiers whose holders did not allow adapted or commercial use, or whose terms are their
own: out of an export unless they are named."""


def licence_of(source: str) -> str:
    """The SPDX expression that a task file declares (`SPDX-License-Identifier: MIT`), else unknown.

    Of several, each covers a part of the file, so all of them do.

    Source of the tag: the SPDX specification, annex on short identifiers in files.
    """
    found = list(dict.fromkeys(filter(None, map(_expression, _TAG.findall(source)))))
    if len(found) > 1:
        found = [f"({one})" if " OR " in one else one for one in found]
    return " AND ".join(found) or UNKNOWN


def _expression(text: str) -> str:
    """The words of an SPDX expression, without the comment around them."""
    words = (word.upper() if word.upper() in _OPERATORS else word for word in _WORD.findall(text))
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def allows_training(licence: str, allowed: Collection[str] = ()) -> bool:
    """Whether rows of a task under this licence may be exported.

    `allowed` are identifiers or patterns; with none of them everything but `FORBIDDING` is, also
    unknown ones. Of an expression every part has to be allowed.
    """
    parts = [word for word in _WORD.findall(licence) if word not in ("(", ")", *_OPERATORS)]
    return all(_allowed(part, allowed) for part in parts)


def _allowed(part: str, allowed: Collection[str]) -> bool:
    if allowed:
        return _matches(part, allowed)
    return not _matches(part, FORBIDDING)


def _matches(part: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(part.lower(), pattern.lower()) for pattern in patterns)
