"""Columns of rows for trainers: declared once, equal in every shard, independent of its rows.

A type is the name of a scalar, a list of one type, or a mapping of names to types. A number may be
unknown, everything else is there.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

TEXT, NUMBER, WHOLE, FLAG = "string", "float64", "int64", "bool"

Type = str | list[Any] | Mapping[str, Any]
Columns = Mapping[str, Type]

MESSAGE: Mapping[str, Type] = {"role": TEXT, "content": TEXT}
MESSAGES: Type = [MESSAGE]
TRACE: Type = {"prompt_ids": [WHOLE], "ids": [WHOLE], "logprobs": [NUMBER]}

_PYTHON: Mapping[str, tuple[type, ...]] = {
    TEXT: (str,),
    NUMBER: (float, int),
    WHOLE: (int,),
    FLAG: (bool,),
}


def check(row: Mapping[str, Any], columns: Columns) -> None:
    """Raises TypeError if a row is not made of exactly these columns."""
    fault = next(_faults(row, columns, "row"), None)
    if fault:
        raise TypeError(fault)


def _faults(value: Any, kind: Type, where: str) -> Iterator[str]:
    if value is None and kind == NUMBER:
        return  # unknown
    if isinstance(kind, str):
        if not isinstance(value, _PYTHON[kind]) or (kind != FLAG and isinstance(value, bool)):
            yield f"{where} is {type(value).__name__}, not {kind}"
    elif isinstance(kind, list):
        for index, item in enumerate(value):
            yield from _faults(item, kind[0], f"{where}[{index}]")
    elif list(value) != list(kind):
        yield f"{where} has {list(value)}, not {list(kind)}"
    else:
        for name, inner in kind.items():
            yield from _faults(value[name], inner, f"{where}.{name}")


def arrow_schema(columns: Columns) -> "pyarrow.Schema":
    """The columns as a schema of pyarrow."""
    import pyarrow

    return pyarrow.schema([(name, _arrow_type(kind)) for name, kind in columns.items()])


def _arrow_type(kind: Type) -> "pyarrow.DataType":
    import pyarrow

    if isinstance(kind, str):
        return pyarrow.type_for_alias(kind)
    if isinstance(kind, list):
        return pyarrow.list_(_arrow_type(kind[0]))
    return pyarrow.struct([(name, _arrow_type(inner)) for name, inner in kind.items()])


def features(columns: Columns) -> list[dict[str, Any]]:
    """The columns as the `features` of a dataset card, which `datasets` reads types from."""
    return [{"name": name, **_feature(kind)} for name, kind in columns.items()]


def _feature(kind: Type) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": kind}
    if isinstance(kind, list):
        inner = _feature(kind[0])
        return {"list": inner["dtype"] if list(inner) == ["dtype"] else inner["struct"]}
    return {"struct": features(kind)}
