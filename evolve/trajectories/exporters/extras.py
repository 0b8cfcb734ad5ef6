"""Files that a trainer wants beside the rows: how it finds and reads them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.trajectories.decontamination.splits import TRAIN
from evolve.trajectories.exporters.formats import Kind

_OPENAI_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}
_LLAMAFACTORY: Mapping[Kind, dict[str, Any]] = {
    Kind.SUPERVISED: {"columns": {"messages": "messages"}},
    Kind.CONVERSATION: {"columns": {"messages": "messages"}},
    Kind.PREFERENCE: {
        "ranking": True,
        "columns": {"messages": "messages", "chosen": "chosen", "rejected": "rejected"},
    },
    Kind.LABELLED: {"columns": {"messages": "messages", "kto_tag": "kto_tag"}},
}


def extras(name: str, kinds: Mapping[str, Kind], shards: Sequence[str]) -> dict[str, str]:
    """Texts by file name, for a format; empty for those that need none.

    Args:
        name: of the format.
        kinds: of the rows of every view.
        shards: paths within the export.
    """
    if name == "llamafactory":
        return {"dataset_info.json": _dataset_info(kinds, shards)}
    if name == "axolotl":
        return {"axolotl.yaml": _axolotl(kinds, shards)}
    return {}


def _dataset_info(kinds: Mapping[str, Kind], shards: Sequence[str]) -> str:
    """An entry for the folder of every view and split, as `data/README.md` there describes it."""
    entries = {}
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in shards):
        _, view, split = folder.split("/")
        entry = {"file_name": folder, "formatting": "sharegpt", "tags": _OPENAI_TAGS}
        entries[view if split == TRAIN else f"{view}_{split}"] = entry | _LLAMAFACTORY[kinds[view]]
    return json.dumps(entries, indent=2) + "\n"


def _axolotl(kinds: Mapping[str, Kind], shards: Sequence[str]) -> str:
    """The part of a configuration that names the data, one view at a time to be kept."""
    import yaml

    lines = ["# Keep the entries of one view; preference rows need `rl: dpo` beside them.\n"]
    entries: dict[str, list[dict[str, Any]]] = {}
    for path in shards:
        _, view, split, _ = path.split("/")
        is_pair = kinds[view] is Kind.PREFERENCE
        entry: dict[str, Any] = {
            "path": path,
            "ds_type": path.rpartition(".")[2].replace("jsonl", "json"),
            "split": "train",  # the split of a single file
            "type": "chat_template.default" if is_pair else "chat_template",
            "field_messages": "messages",
        }
        if is_pair:
            entry |= {"field_chosen": "chosen", "field_rejected": "rejected"}
        if kinds[view] is Kind.CONVERSATION:  # its messages say each whether they are trained on
            entry |= {"roles_to_train": [], "message_field_training": "train"}
        entries.setdefault("datasets" if split == TRAIN else "test_datasets", []).append(entry)
    return "".join(lines) + yaml.safe_dump(entries, sort_keys=False)
