"""Shards of rows on disk: JSON lines while an export is under way, parquet if it is asked for.

Rows become visible in the folder of an export only with all others: an export is built beside its
folder and takes its place by one rename. Output is committed unit by unit (a run, a view of tasks)
and within long ones, so that an export that was killed goes on where it was.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from evolve.core.errors import UsageError
from evolve.trajectories.exporters.columns import Columns, arrow_schema, check

SHARD_BYTES = 200_000_000
"""No shard is larger, neither as JSON lines nor, being compressed, as parquet."""

DATA = "data"
_JOURNAL = "journal.json"
_BATCH_ROWS = 512  # of a parquet row group: rows that a conversion holds in memory


@dataclass(slots=True)
class Stream:
    """How far the rows of one view and split have come: bytes and rows of each shard."""

    sizes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished file, named relative to the folder of the export."""

    path: str
    rows: int
    bytes: int
    sha256: str


class Shards(AbstractContextManager["Shards"]):
    """The rows of an export that is being built in a folder of its own.

    Args:
        folder: where it is built; a journal in it is gone on with if it is of the same export.
        identity: of the export's inputs; another one in the journal starts anew.
        columns: of every view.
        limit: bytes that a shard may have.

    Attributes:
        done: units that are complete.
        under_way: of a unit that was begun, the step whose rows are there with those before.
        facts: committed with the rows.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        columns: Mapping[str, Columns],
        *,
        limit: int = SHARD_BYTES,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._columns = columns
        self._limit = limit
        self._files: dict[str, IO[bytes]] = {}
        self._streams: dict[str, Stream] = {}
        self.done: list[str] = []
        self.under_way: dict[str, int] = {}
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> "Shards":
        journal = self._read_journal()
        self.done, self.facts = journal["done"], journal["facts"]
        self.under_way = journal.get("under_way", {})
        self._streams = {name: Stream(**data) for name, data in journal["streams"].items()}
        self._cut_to_journal()
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def rows(self, view: str, split: str) -> int:
        """How many rows of a view and split there are."""
        stream = self._streams.get(f"{view}/{split}")
        return sum(stream.rows) if stream else 0

    def write(self, view: str, split: str, row: Mapping[str, Any]) -> None:
        """Append a row. Raises TypeError if it does not have the columns of its view."""
        check(row, self._columns[view])
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        line = text.encode(errors="replace") + b"\n"  # half of a surrogate pair is no UTF-8
        name = f"{view}/{split}"
        stream = self._streams.setdefault(name, Stream())
        if not stream.sizes or stream.sizes[-1] + len(line) > self._limit:
            stream.sizes.append(0)
            stream.rows.append(0)
            if name in self._files:
                self._close(name)
        if name not in self._files:
            path = self._folder / shard_name(name, len(stream.sizes) - 1, "jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[name] = path.open("ab")
        self._files[name].write(line)
        stream.sizes[-1] += len(line)
        stream.rows[-1] += 1

    def commit(self, unit: str, facts: Mapping[str, Any], *, after: int | None = None) -> None:
        """The rows of a unit, and the facts, survive a kill from here on.

        Args:
            unit: its name.
            facts: such as the present counts.
            after: the step up to which the unit is written; None if it is complete.
        """
        for name in list(self._files):
            self._close(name)
        if after is None:
            self.done = [*self.done, unit]
        self.under_way = {} if after is None else {unit: after}
        self.facts = dict(facts)
        journal = {
            "identity": self._identity,
            "done": self.done,
            "under_way": self.under_way,
            "facts": self.facts,
            "streams": {name: asdict(stream) for name, stream in self._streams.items()},
        }
        write_atomically(self._folder / _JOURNAL, json.dumps(journal))

    def finish(self, *, parquet: bool) -> list[Shard]:
        """Convert requested shards to parquet, and describe every file."""
        lines: list[Path] = []
        shards: list[Shard] = []
        for name in sorted(self._streams):
            for number, rows in enumerate(self._streams[name].rows):
                path = self._folder / shard_name(name, number, "jsonl")
                if parquet:
                    lines.append(path)
                    path = _as_parquet(path, self._columns[name.partition("/")[0]])
                shards.append(self._describe(path, rows))
        (self._folder / _JOURNAL).unlink(missing_ok=True)
        for path in lines:
            path.unlink()
        return shards

    def _close(self, name: str) -> None:
        file = self._files.pop(name)
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def _read_journal(self) -> dict[str, Any]:
        try:
            journal: dict[str, Any] = json.loads((self._folder / _JOURNAL).read_text())
        except FileNotFoundError:
            journal = {}
        if journal.get("identity") == self._identity:
            return journal
        return {"done": [], "facts": {}, "streams": {}}

    def _cut_to_journal(self) -> None:
        """Remove the output of a killed export after its last commit."""
        kept = {
            shard_name(name, number, "jsonl"): size
            for name, stream in self._streams.items()
            for number, size in enumerate(stream.sizes)
        }
        for path in (self._folder / DATA).glob("*/*/*"):
            size = kept.get(path.relative_to(self._folder).as_posix())
            if size is None:
                path.unlink()
            else:
                os.truncate(path, size)

    def _describe(self, path: Path, rows: int) -> Shard:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = path.relative_to(self._folder).as_posix()
        return Shard(name, rows, path.stat().st_size, digest)


def shard_name(stream: str, number: int, suffix: str) -> str:
    """Where a shard of a view and split (`sft/train`) lies: `data/sft/train/00000.jsonl`."""
    return f"{DATA}/{stream}/{number:05d}.{suffix}"


def read_shard(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a shard, in order, in bounded memory.

    Raises:
        UsageError: it is parquet, and pyarrow is not installed.
    """
    if path.suffix != ".parquet":
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
        return
    require_pyarrow()
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            yield from batch.to_pylist()


def require_pyarrow() -> None:
    """Raises UsageError if parquet cannot be written or read."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "parquet needs pyarrow: `pip install 'evolve-kernels[data]'`, or take --format jsonl"
        ) from error


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by one rename, on disk when this returns."""
    partial = path.with_name(f".{path.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _as_parquet(lines: Path, columns: Columns) -> Path:
    """A shard as parquet, beside its JSON lines."""
    import pyarrow
    import pyarrow.parquet

    schema = arrow_schema(columns)
    path = lines.with_suffix(".parquet")
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row in read_shard(lines):
            batch.append(row)
            if len(batch) == _BATCH_ROWS:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema))
                batch = []
        if batch:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
    return path
