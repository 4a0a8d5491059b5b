"""Folders that Hugging Face's `save_to_disk` wrote: which of their files hold the rows.

`state.json` lists the Arrow files of a dataset. Other Arrow files in the folder are caches.
"""

from pathlib import Path

from data_prep.errors import UsageError
from data_prep.files import read_json_object

STATE = "state.json"
SPLITS = "dataset_dict.json"
DESCRIPTIONS = (STATE, SPLITS, "dataset_info.json")
INDICES = "_indices_data_files"


def reason_to_skip(key: str, path: Path) -> str | None:
    """Return the reason why a file of a saved dataset is not read; None if it is to be read.

    Raises UsageError for a dataset whose rows are chosen by a separate list of indices.
    """
    folder = path.parent
    is_saved = (folder / STATE).is_file() or (folder / SPLITS).is_file()
    if is_saved and path.name in DESCRIPTIONS:
        return "dataset_description"
    if path.suffix != ".arrow" or not (folder / STATE).is_file():
        return None
    state = read_json_object(folder / STATE) or {}
    if state.get(INDICES):
        raise UsageError(
            f"{key}: {folder.name} is a selection of rows of a larger dataset; save it again "
            "after dataset.flatten_indices()"
        )
    listed = [each.get("filename") for each in state.get("_data_files") or []]
    return None if path.name in listed else "not_in_dataset"
