"""Make a Hugging Face folder one of sentence-transformers: its modules are encoder and pooling.

`SentenceTransformer(folder)` then gives the vectors of `sesame embed unit=sentence`.
Try it: sesame export encoder=mine export.sentence_vectors=mean
"""

import json
from pathlib import Path

from data_prep.files import write_atomically

POOLING = "1_Pooling"
# Our pooling to the key of Pooling's settings.
MODES = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
}
TAG = "sentence-transformers"
USE = """
```python
from sentence_transformers import SentenceTransformer

SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another one."])
```
"""


def write_sentence_transformers(out: Path, width: int, longest: int, pooling: str) -> None:
    """Add the files of sentence-transformers to a folder with an encoder.

    width: of a vector. longest: maximum tokens; longer texts are truncated, as in `embed`.
    """
    kinds = {"": "Transformer", POOLING: "Pooling"}
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(kinds.items())
    ]
    modes = {key: mode == pooling for mode, key in MODES.items()}
    (out / POOLING).mkdir(exist_ok=True)
    _write(out / "modules.json", modules)
    _write(out / POOLING / "config.json", {"word_embedding_dimension": width, **modes})
    _write(out / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    _write(out / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _write(path: Path, content: object) -> None:
    write_atomically(path, json.dumps(content, indent=2) + "\n")
