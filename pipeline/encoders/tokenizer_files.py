"""Copy a tokenizer's files beside a model that uses it."""

import json
from pathlib import Path

from data_prep.files import read_json_object, write_atomically
from pipeline.store.encoder_files import TOKENIZER_FILES


def copy_tokenizer(source: Path, out: Path, max_positions: int, has_segments: bool) -> None:
    """Copy the files of a tokenizer; state the model's maximum length and input names."""
    copy_files(source, out, TOKENIZER_FILES)
    settings = out / "tokenizer_config.json"
    known = read_json_object(settings) if settings.exists() else {}
    stated = (known or {}) | {"model_max_length": max_positions}
    if not has_segments:
        stated["model_input_names"] = ["input_ids", "attention_mask"]
    write_atomically(settings, json.dumps(stated, indent=2, ensure_ascii=False) + "\n")


def copy_files(source: Path, out: Path, names: tuple[str, ...]) -> None:
    """Copy those of the named files that exist."""
    for name in names:
        if (source / name).exists():
            write_atomically(out / name, (source / name).read_bytes())
