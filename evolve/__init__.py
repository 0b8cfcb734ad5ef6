"""Evolutionary search for accelerator kernels: a PyTorch reference in, a verified fast kernel out.

    import evolve

    result = evolve.optimize("softmax", budget="10m")
    result.speedup, result.interval
    ModelNew = result.module()

Importing this package costs nothing: torch, LiteLLM, Hydra and SQLAlchemy are imported by the
modules that need them, when they need them.
"""

TYPE_CHECKING = False  # `typing` itself takes a tenth of the time that this import may take

if TYPE_CHECKING:
    from typing import Any

    from evolve.app.library.door import evaluate as evaluate
    from evolve.app.library.door import evaluate_async as evaluate_async
    from evolve.app.library.door import optimize as optimize
    from evolve.app.library.door import optimize_async as optimize_async
    from evolve.app.library.events import Ended as Ended
    from evolve.app.library.events import Event as Event
    from evolve.app.library.events import Judged as Judged
    from evolve.app.library.events import Notice as Notice
    from evolve.app.library.events import Phase as Phase
    from evolve.app.library.events import Started as Started
    from evolve.app.library.result import Result as Result
    from evolve.core.errors import UsageError as UsageError

__version__ = "0.1.0"

_PLACES = {
    **dict.fromkeys(("evaluate", "evaluate_async", "optimize", "optimize_async"), "library.door"),
    **dict.fromkeys(("Ended", "Event", "Judged", "Notice", "Phase", "Started"), "library.events"),
    "Result": "library.result",
}

__all__ = ["UsageError", "__version__", *_PLACES]


def __getattr__(name: str) -> "Any":
    """The library's functions and classes, imported when they are first asked for."""
    import importlib

    if name == "UsageError":
        found = importlib.import_module("evolve.core.errors").UsageError
    elif name in _PLACES:
        found = getattr(importlib.import_module(f"evolve.app.{_PLACES[name]}"), name)
    else:
        raise AttributeError(f"module 'evolve' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
