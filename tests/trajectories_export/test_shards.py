"""Shards of rows.

- What is committed survives a kill, what came after it is gone, and going on gives the same bytes.
- A journal of another export is not gone on with.
- No shard is larger than the limit; rows come back in order, as JSON lines and as parquet.
- Every shard has the declared columns, also where its rows hold nothing in one of them.
- A row that lacks a column, or has another type in it, is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.trajectories.exporters.columns import FLAG, MESSAGES, NUMBER, TEXT, Columns, check
from evolve.trajectories.exporters.shards import Shard, Shards, read_shard

COLUMNS: Mapping[str, Columns] = {"sft": {"messages": MESSAGES, "task": TEXT}}


def row(number: int, length: int = 10) -> dict[str, Any]:
    content = f"{number}:" + "é" * length
    return {"messages": [{"role": "user", "content": content}], "task": f"task{number % 3}"}


def opened(folder: Path, identity: str = "one", limit: int = 10_000) -> Shards:
    return Shards(folder, identity, COLUMNS, limit=limit)


def whole(folder: Path, *, parquet: bool = False, units: int = 4) -> list[Shard]:
    """An export of some units of 10 rows in one go."""
    with opened(folder, limit=500) as shards:
        for unit in range(units):
            write_unit(shards, unit)
        return shards.finish(parquet=parquet)


def write_unit(shards: Shards, unit: int) -> None:
    for number in range(10 * unit, 10 * unit + 10):
        shards.write("sft", "test" if number % 7 == 0 else "train", row(number))
    shards.commit(f"run{unit}", {"rows": 10 * unit + 10})


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_rows_come_back_in_order(tmp_path: Path):
    shards = whole(tmp_path)
    train = [shard.path for shard in shards if "/train/" in shard.path]
    back = [one for path in train for one in read_shard(tmp_path / path)]
    assert back == [row(number) for number in range(40) if number % 7]
    assert [shard.rows for shard in shards] == [
        sum(1 for _ in read_shard(tmp_path / shard.path)) for shard in shards
    ]


def test_no_shard_is_larger_than_the_limit(tmp_path: Path):
    shards = whole(tmp_path)
    assert len(shards) > 5
    assert all(shard.bytes <= 500 for shard in shards)


def test_a_killed_export_goes_on_and_gives_the_same_bytes(tmp_path: Path):
    whole(tmp_path / "whole")
    with opened(tmp_path / "cut", limit=500) as shards:
        write_unit(shards, 0)
        write_unit(shards, 1)
        for number in range(20, 26):  # never committed
            shards.write("sft", "train", row(number))
    with opened(tmp_path / "cut", limit=500) as shards:
        assert shards.done == ["run0", "run1"]
        assert shards.facts == {"rows": 20}
        write_unit(shards, 2)
        write_unit(shards, 3)
        shards.finish(parquet=False)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_journal_of_another_export_is_not_gone_on_with(tmp_path: Path):
    with opened(tmp_path, "one") as shards:
        write_unit(shards, 0)
    with opened(tmp_path, "two") as shards:
        assert shards.done == []
        write_unit(shards, 5)
        [test, train] = shards.finish(parquet=False)
    assert next(read_shard(tmp_path / train.path)) == row(50)
    assert test.rows + train.rows == 10


def test_parquet_has_the_same_rows_and_one_schema(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    lines, tables = tmp_path / "lines", tmp_path / "tables"
    text = whole(lines)
    binary = whole(tables, parquet=True)
    assert [shard.path.replace("jsonl", "parquet") for shard in text] == [
        shard.path for shard in binary
    ]
    for one, other in zip(text, binary, strict=True):
        assert list(read_shard(lines / one.path)) == list(read_shard(tables / other.path))
    schemas = [parquet.read_schema(tables / shard.path) for shard in binary]
    assert all(schema == schemas[0] for schema in schemas)
    assert not list(tables.rglob("*.jsonl"))


def test_parquet_is_written_alike_twice(tmp_path: Path):
    pytest.importorskip("pyarrow")
    whole(tmp_path / "one", parquet=True)
    whole(tmp_path / "two", parquet=True)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_an_export_that_is_killed_while_it_converts_goes_on(tmp_path: Path):
    pytest.importorskip("pyarrow")
    whole(tmp_path / "whole", parquet=True)
    with opened(tmp_path / "cut", limit=500) as shards:
        for unit in range(4):
            write_unit(shards, unit)
    half = tmp_path / "cut" / "data" / "sft" / "train" / "00000.parquet"
    half.write_bytes(b"PAR1 and no more")
    with opened(tmp_path / "cut", limit=500) as shards:
        shards.finish(parquet=True)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_columns_without_content_have_their_type_in_every_shard(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"x": {"messages": MESSAGES, "labels": [FLAG], "score": NUMBER}}
    with Shards(tmp_path, "one", columns, limit=80) as shards:
        shards.write("x", "train", {"messages": [], "labels": [], "score": 1})
        shards.write("x", "train", {"messages": row(1)["messages"], "labels": [True], "score": 0.5})
        shards.commit("run", {})
        made = shards.finish(parquet=True)
    schemas = [str(parquet.read_schema(tmp_path / shard.path)) for shard in made]
    assert len(schemas) == 2
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "t"}, r"row has \['task'\]"),
        ({"messages": [], "task": None}, "row.task is NoneType, not string"),
        ({"messages": [], "task": 3}, "row.task is int, not string"),
        ({"messages": [{"role": "user"}], "task": "t"}, r"row.messages\[0\] has \['role'\]"),
    ],
)
def test_a_row_of_other_columns_is_refused(wrong: dict[str, Any], message: str):
    with pytest.raises(TypeError, match=message):
        check(wrong, COLUMNS["sft"])


@settings(max_examples=50, deadline=None)
@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=40))
def test_any_text_comes_back(text: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("any")
    given = {"messages": [{"role": "user", "content": text}], "task": "t"}
    with opened(folder) as shards:
        shards.write("sft", "train", given)
        shards.commit("run", {})
        [made] = shards.finish(parquet=False)
    [back] = read_shard(folder / made.path)
    readable = text.encode(errors="replace").decode()  # half of a surrogate pair is no text
    assert back["messages"][0]["content"] == readable
    assert json.dumps(back, ensure_ascii=False)
