"""The reasoning that models write into their answers, apart from the answer.

Some endpoints leave the marks of a model's reasoning in the text: `<think>` (DeepSeek, Qwen),
`[THINK]` (Magistral), `<|channel|>analysis` (gpt-oss), `<seed:think>` (Seed), `◁think▷` (Kimi),
`<|START_THINKING|>` (Command), `<|begin_of_thought|>` (Sky-T1), `<|channel>thought` (Gemma) and so
on. What stands between them is a draft and no part of the answer.
"""

import re

_NAMES = (
    r"(?:\w+[:_])?(?:think|thinking|thought|thoughts|antthinking|inner_prefix)|"
    r"reasoning|reflection|scratchpad|(?:START|BEGIN)_THINKING|begin_of_thought"
)
_WEAK = re.compile(r"reasoning|reflection|scratchpad", re.IGNORECASE)  # also words of an answer
_OPEN = re.compile(rf"^[ \t]*(?P<left>[<\[◁]\|?)(?P<name>{_NAMES})\|?[>\]▷]", re.I | re.M)
_ENDS = {
    "start_thinking": "END_THINKING",
    "begin_thinking": "END_THINKING",
    "begin_of_thought": "end_of_thought",
    "inner_prefix": "inner_suffix",
}
# A chat template may write the opening mark, so that a reply holds only the end, on a line.
_BARE_END = re.compile(
    r"^[ \t]*(?:<|\[|◁)/(?:\w+[:_])?(?:think|thinking|thought)(?:>|\]|▷)", re.MULTILINE | re.I
)
_CHANNEL = re.compile(
    r"\s*(?:<\|start\|>assistant)?<\|?channel\|?>\s*(?:analysis|thought|commentary)"
    r"(?:<\|message\|>)?"
)
_FINAL = re.compile(r"<\|?channel\|?>\s*final\s*(?:<\|constrain\|>\w*\s*)?<\|message\|>")
_GEMMA_END = re.compile(r"<channel\|>")
_CONTROL = re.compile(r"(?:<\|end\|><\|start\|>assistant|<\|(?:end|return)\|>)\s*$")
_STRIPPED = re.compile(r"\s*analysis(?=[A-Z\W]).*?assistantfinal", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)
_MAX_BLOCKS = 64
_GRANITE = re.compile(
    r"\s*Here(?: is|'s) my thought process:(.*?)Here(?: is|'s) my response:", re.DOTALL
)


def split_thought(reply: str) -> tuple[str, str]:
    """The reasoning in a reply and the answer after it, both as written but for the marks.

    Reasoning that does not end leaves no answer. Without marks all is the answer, and so is what
    stands before marks that only look like some, such as in the middle of a line.

    >>> split_thought("[THINK]a draft[/THINK]the answer")
    ('a draft', 'the answer')
    """
    thoughts: list[str] = []
    rest = _without_channels(reply, thoughts)
    rest = _without_blocks(rest, thoughts)
    if ends := list(_BARE_END.finditer(rest)):
        thoughts.append(rest[: ends[-1].start()])
        rest = rest[ends[-1].end() :]
    return "\n".join(filter(None, (thought.strip() for thought in thoughts))), rest


def _without_channels(reply: str, thoughts: list[str]) -> str:
    """Without the channels of gpt-oss and Gemma, of which the last is the answer."""
    if opened := _CHANNEL.match(reply):
        ends = list(_FINAL.finditer(reply)) or list(_GEMMA_END.finditer(reply))
        end = ends[-1] if ends else None
        thought = reply[opened.end() : end.start() if end else len(reply)]
        thoughts.append(_CONTROL.sub("", thought))
        return _CONTROL.sub("", reply[end.end() :]) if end else ""
    for pattern in (_STRIPPED, _GRANITE):
        if found := pattern.match(reply):
            thoughts.append(found[1] if pattern is _GRANITE else found[0])
            return reply[found.end() :]
    if final := _FINAL.match(reply.lstrip()):
        return _CONTROL.sub("", reply.lstrip()[final.end() :])
    return reply


def _without_blocks(reply: str, thoughts: list[str]) -> str:
    """Without reasoning between marks: at the start, and between parts of the answer."""
    rest, start = reply, 0
    for _ in range(_MAX_BLOCKS):
        opened = _OPEN.search(rest, start)
        if opened is None:
            break
        before, start = rest[: opened.start()], opened.end()
        end = _end(opened["name"]).search(rest, start)
        is_open = end is None and _WEAK.search(opened["name"])
        if is_open or len(_FENCE.findall(before)) % 2:  # inside of a program
            continue
        thoughts.append(rest[start : end.start() if end else len(rest)])
        rest, start = before + (rest[end.end() :] if end else ""), len(before)
    return rest


def _end(name: str) -> re.Pattern[str]:
    closing = re.escape(_ENDS.get(name.lower(), ""))
    mark = rf"\|?{closing}" if closing else rf"\|?/\|?{re.escape(name)}"
    return re.compile(rf"[<\[◁]{mark}\|?[>\]▷]", re.IGNORECASE)
