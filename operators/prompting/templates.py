"""Prompts as files: Jinja templates that ship, and those of a folder that a user names."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.core.errors import UsageError
from operators.quoting import Quoted, one_line, quote

if TYPE_CHECKING:
    import jinja2

SHIPPED = Path(__file__).parents[1] / "prompts"


def render_prompt(name: str, folder: str = "", **values: Any) -> Quoted:
    """The text of a template.

    A value that is neither a number nor `Quoted` comes out on one line, with nothing hidden in it:
    a template cannot pass on text of unknown origin by mistake.

    Args:
        name: the file's name without `.j2`.
        folder: a user's folder, whose templates stand in for those that ship under their names.
        **values: what the template may use; it has to exist where it does.

    Raises:
        UsageError: no such folder or template, a mistake in it, or a value it asks for in vain.
    """
    import jinja2

    try:
        return Quoted(_template(name, folder).render(values).strip())
    except jinja2.UndefinedError as error:
        known = ", ".join(sorted(values))
        raise UsageError(f"prompt {name}.j2: {error.message}; it may use {known}") from error
    except jinja2.TemplateNotFound as error:
        raise UsageError(f"prompt {error.name}: there is no such file beside {name}.j2") from error


def check_prompts(folder: str) -> None:
    """Read every template of a user's folder, which else happens when it is first needed.

    Raises:
        UsageError: no such folder, or a mistake in a template.
    """
    for name in _environment(folder).list_templates(["j2"]) if folder else ():
        _template(name.removesuffix(".j2"), folder)


def _template(name: str, folder: str) -> "jinja2.Template":
    import jinja2

    try:
        return _environment(folder).get_template(f"{name}.j2")
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"prompt {error.name}, line {error.lineno}: {error.message}") from error


@lru_cache
def _environment(folder: str) -> "jinja2.Environment":
    import jinja2

    if folder and not Path(folder).is_dir():
        raise UsageError(f"operators.*.prompts: {folder!r} is no folder; name one with .j2 files")
    folders = [Path(folder), SHIPPED] if folder else [SHIPPED]
    environment = jinja2.Environment(  # a prompt is no markup: nothing is escaped
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["quote"] = quote
    return environment


def _finalize(value: Any) -> Any:
    """Every expression of a template passes here."""
    return value if isinstance(value, (int, float, Quoted)) else one_line(str(value))
