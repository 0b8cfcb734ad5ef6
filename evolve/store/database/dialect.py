"""Differences of SQLite and PostgreSQL: types of columns, and a few expressions."""

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    ColumnElement,
    Integer,
    Table,
    Text,
    TypeDecorator,
    cast,
    event,
    func,
)
from sqlalchemy.dialects.postgresql import insert as _insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

upsert = _insert
"""An INSERT with ON CONFLICT, whose clauses both compilers read: they have the syntax in common."""


class _Words(TypeDecorator[str]):
    """Text of PostgreSQL, which holds no NUL; sorted byte by byte, as SQLite does."""

    impl = Text(collation="C")
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value.replace("\0", "\ufffd") if value and "\0" in value else value


WHOLE: TypeEngine[int] = Integer().with_variant(BigInteger(), "postgresql")
"""64 bits in both."""

WORDS: TypeEngine[str] = Text().with_variant(_Words(), "postgresql")


class json_text(FunctionElement[str]):  # noqa: N801 - it is written as a function of SQL
    """The text of a value in a column of JSON text: `json_text(column, "device", "kind")`."""

    type = Text()
    inherit_cache = True


@compiles(json_text)
def _json_text(element: Any, compiler: Any, **options: Any) -> str:
    column, *path = (compiler.process(clause, **options) for clause in element.clauses)
    steps = " || '.' || ".join(path)
    return f"json_extract({column}, '$.' || {steps})"


@compiles(json_text, "postgresql")
def _json_text_of_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    column, *path = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(({column})::json #>> ARRAY[{', '.join(path)}])"


def total(value: ColumnElement[Any]) -> ColumnElement[Any]:
    """The sum of a column in its own type, 0 of no rows: PostgreSQL's is of another type."""
    return cast(func.coalesce(func.sum(value), 0), value.type)


_REFUSED = "%(table)s is append-only"
_ON_SQLITE = (
    "CREATE TRIGGER %(table)s_no_{0} BEFORE {0} ON %(table)s "
    f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
)
_FUNCTION = (
    "CREATE FUNCTION %(table)s_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
)
_TRIGGER = (
    "CREATE TRIGGER %(table)s_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %(table)s "
    "FOR EACH STATEMENT EXECUTE FUNCTION %(table)s_refuse()"
)
_APPEND_ONLY = {
    "sqlite": [_ON_SQLITE.format("update"), _ON_SQLITE.format("delete")],
    "postgresql": [_FUNCTION, _TRIGGER],
}


def append_only(table: Table) -> None:
    """Let the database refuse to change or delete rows of this table, from its creation on."""
    for dialect, statements in _APPEND_ONLY.items():
        for statement in statements:
            ddl = DDL(statement)  # type: ignore[no-untyped-call]
            event.listen(table, "after_create", ddl.execute_if(dialect=dialect))
