"""The dataset card: `README.md` whose header tells `datasets` where each view lies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.trajectories.decontamination.splits import TEST, TRAIN
from evolve.trajectories.exporters.columns import features
from evolve.trajectories.exporters.manifest import Manifest

NAME = "README.md"
_TEMPLATE = "card.md.j2"


def card(manifest: Manifest) -> str:
    """The text of the card; nothing in it depends on when or where it is written."""
    import jinja2
    import yaml

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["number"] = "{:,}".format
    header = yaml.safe_dump(_header(manifest), sort_keys=False, allow_unicode=True)
    splits = [
        split
        for split in (TRAIN, TEST)
        if any(split in counts for counts in manifest.rows.values())
    ]
    text = environment.get_template(_TEMPLATE)
    return text.render(
        manifest=manifest,
        header=header,
        splits=splits or [TRAIN],
        first_view=next(iter(manifest.rows), "VIEW"),
    )


def _header(manifest: Manifest) -> dict[str, Any]:
    return {
        "tags": ["kernels", "evolutionary-search", "code"],
        "configs": [_config(view, counts, manifest) for view, counts in manifest.rows.items()],
        "dataset_info": [
            {"config_name": view, "features": features(manifest.columns[view])}
            for view in manifest.rows
        ],
    }


def _config(view: str, counts: Mapping[str, int], manifest: Manifest) -> dict[str, Any]:
    files = [
        {
            "split": split,
            "path": [shard.path for shard in manifest.shards if f"/{view}/{split}/" in shard.path],
        }
        for split in counts
    ]
    return {"config_name": view, "data_files": files}
