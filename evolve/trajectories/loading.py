"""Reading an export back, without a network and without a library."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.trajectories.decontamination.splits import TRAIN
from evolve.trajectories.exporters.manifest import read_manifest
from evolve.trajectories.exporters.shards import read_shard


def load_dataset(folder: str | Path, view: str, split: str = TRAIN) -> Iterator[dict[str, Any]]:
    """The rows of a view, in order, read as they are asked for.

    `datasets.load_dataset(folder, view)` of Hugging Face reads the same folder by its card.

    Args:
        folder: of a finished export.
        view: as the export names it, e.g. `sft`.
        split: `train` or `test`.

    Raises:
        UsageError: the export is not finished, a file is missing or cut off, or there is no such
            view or split.
    """
    root = Path(folder)
    manifest = read_manifest(root)
    found = manifest.rows.get(view)
    if found is None:
        raise UsageError(
            f"{root} has no view {view}; there are {', '.join(manifest.rows) or 'none'}"
        )
    if split not in found:
        raise UsageError(f"view {view} of {root} has no split {split}; it has {', '.join(found)}")
    shards = [one for one in manifest.shards if one.path.startswith(f"data/{view}/{split}/")]
    for shard in shards:
        path = root / shard.path
        if not path.is_file() or path.stat().st_size != shard.bytes:
            raise UsageError(f"{path} is missing or not as it was written; export it again")
    return (row for shard in shards for row in read_shard(root / shard.path))
