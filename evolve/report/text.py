"""Words and numbers as reports print them, and text of unknown origin made fit to be shown."""

import contextlib
import re
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.measurement import Interval

# Control characters but for tab and newline; marks that reorder or hide text (bidirectional
# controls, zero-width characters, byte order mark); line separators; lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\ufffe\uffff]"
)

TIMES = "\N{MULTIPLICATION SIGN}"

_BASELINES = {
    "eager": "PyTorch eager",
    "eager_ieee": "PyTorch eager (IEEE)",
    "eager_tf32": "PyTorch eager (TF32)",
    "compile": "torch.compile",
    "compile_max_autotune": "torch.compile (max-autotune)",
    "elite": "the best kernel at that time",
    "candidate": "this kernel",
}


def printable(text: str) -> str:
    """The text with every invisible or reordering character spelled out.

    Candidates are hostile: a bidirectional control could show a reader another program than the
    one that ran.

    >>> printable("a" + chr(0x202E) + "b")
    'a<U+202E>b'
    """
    return _UNPRINTABLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 2000) -> str:
    r"""The text, printable, on one line of at most `limit` characters.

    >>> one_line("a\n  b", 3), one_line("abcd", 3)
    ('a b', 'ab…')
    """
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def baseline_name(name: str) -> str:
    """A baseline as prose calls it.

    >>> baseline_name("eager"), baseline_name("file:mine.py")
    ('PyTorch eager', 'mine.py')
    """
    return _BASELINES.get(name, name.removeprefix("file:"))


def ratio_text(value: float) -> str:
    """A speedup with as many digits as can matter; three decimals near 1."""
    if 0.9 <= value < 1.1 or value < 0.1:
        return f"{value:.3f}{TIMES}"
    return f"{value:.2f}{TIMES}" if value < 100 else f"{value:.0f}{TIMES}"


def span_text(interval: Interval) -> str:
    """The bounds of a speedup's interval.

    >>> span_text(Interval(2.0, 1.9, 2.1))
    '1.90 to 2.10'
    """
    return f"{ratio_text(interval.low)[:-1]} to {ratio_text(interval.high)[:-1]}"


def time_text(time_ms: float) -> str:
    """A duration of one call, from milliseconds.

    >>> time_text(0.0125), time_text(3.14159), time_text(2500)
    ('12.5 µs', '3.14 ms', '2.5 s')
    """
    if time_ms < 1:
        return f"{time_ms * 1e3:.3g} µs"
    return f"{time_ms:.3g} ms" if time_ms < 1000 else f"{time_ms / 1e3:.3g} s"


def descriptor_text(name: str, value: float | str) -> str:
    """The value of a descriptor, with its unit if its name says one.

    >>> descriptor_text("memory_bytes", 10485760.0), descriptor_text("longest_sum", 8193.0)
    ('10.5 MB', '8,193')
    >>> descriptor_text("compile_s", 61.0), descriptor_text("error", 0.10173)
    ('1 min 1 s', '0.1017')
    """
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB" if value >= 1e5 else f"{value:,.0f} B"
    if name.endswith("_s"):
        return duration_text(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """A time span as people say it.

    >>> duration_text(7.25), duration_text(112), duration_text(7380)
    ('7.2 s', '1 min 52 s', '2 h 3 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count_text(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count_text(1, "proposal"), count_text(12000, "proposal")
    ('1 proposal', '12,000 proposals')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def make_folder(folder: Path, argument: str) -> Path:
    """Make a folder for output, with those above it; `argument` has named it.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{argument}: the folder {folder} cannot be made ({error.strerror}); choose another"
        ) from error
    return folder


def write_text(path: Path, text: str) -> Path:
    """Write a file whole or not at all.

    Raises:
        UsageError: the path cannot be written.
    """
    if not path.name or path.is_dir():
        raise UsageError(f"output {str(path)!r} is a folder; name a file in it")
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UsageError(
            f"output {str(path)!r} cannot be written ({error.strerror}); "
            "name a file in an existing folder with free space"
        ) from error
    return path
