"""Prepare a folder for the Hugging Face Hub from a fine-tuned model or an encoder.

Copies the files that a user of the model needs and no others: other people's folders also hold
predictions, training data and the state of a training. The model card gets the header that the Hub
reads and a data statement. A file that names a place of this machine is refused. Nothing leaves
the machine: see `hub`.
Try it: sesame publish model=mine/ner licence=cc-by-4.0 language=sv out=ner-sv
"""

import filecmp
import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.reading.untrusted import read_object, read_text
from data_prep.tokenizers.vocabulary import COUNTS, VOCABULARY
from data_prep.vectors.table import VECTORS, WORDS
from pipeline.config.schema import check_language, check_licence
from pipeline.export.card import UNSTATED as NO_LICENCE
from pipeline.models.elmo.allennlp_options import OPTIONS, WEIGHTS
from pipeline.store.encoder_files import MEMBERS, OF_MODEL, TOKENIZER_FILES
from pipeline.store.models import FILE

CARD = "README.md"
RECORDS = ("manifest.json", "run.json")  # of the store; left out without a word
NEEDED = (  # patterns of the names of files that are published
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    FILE,
    *TOKENIZER_FILES,
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
    *(OPTIONS, WEIGHTS, VOCABULARY, COUNTS),
    *(WORDS, VECTORS),
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    *("LICENSE", "NOTICE"),
)
# Folders of models and encoders of ours, and of the modules of sentence-transformers.
FOLDERS = (OF_MODEL, MEMBERS, "[0-9][0-9]", "[0-9]_*")
TEXTS = (".json", ".md")  # files that are searched for places of this machine
ABSOLUTE = re.compile(r"(?:~|/[\w.-]+)/|[A-Za-z]:\\")  # at the beginning of a text
SEARCHED_BYTES = 1 << 20  # larger ones are vocabularies
TAGS = {  # kind of task to the Hub's name
    "classify": "text-classification",
    "multilabel": "text-classification",
    "regress": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
STATEMENT = "\n## Data statement\n\n{statement}\n"
UNSTATED = "Not stated by its makers, beyond the counts in this card."
MINIMAL = "# {name}\n\n## Use\n\n`sesame embed encoder=path/to/this/folder input=sentences.txt`\n"


@dataclass(frozen=True)
class Statement:
    """What only the makers of a model know."""

    licence: str
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    base_model: str = ""
    data: str = ""  # about the training data, as Markdown

    def check(self) -> None:
        """Raise UsageError if the licence is missing, or not one that the Hub knows."""
        if not self.licence:
            raise UsageError(
                "licence: state under which licence others may use the model, such as "
                "licence=apache-2.0 or licence=cc-by-4.0"
            )
        check_licence("licence", self.licence)
        check_language("language", list(self.languages))


def prepare(source: Path, out: Path, stated: Statement, name: str) -> list[str]:
    """Write the folder `out` from a model's or an encoder's folder.

    Returns the names of the files that were left out. Raises UsageError if `out` has files other
    than those it would get, and SesameError if a file names a place of this machine. Then `out` is
    as it was before.
    """
    stated.check()
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        left_out = _write(source, draft, stated, name)
        _refuse_places(draft)
        if _is_taken(out):
            if not _is_same(draft, out):
                raise UsageError(
                    f"out={out}: has files already, and not those that this command writes; choose "
                    "another folder, or remove it"
                )
        else:
            os.replace(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return left_out


def _is_taken(out: Path) -> bool:
    return out.exists() and (not out.is_dir() or any(out.iterdir()))


def _is_same(one: Path, other: Path) -> bool:
    """Return True if two folders hold the same files."""
    names = _files(one)
    return names == _files(other) and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in names
    )


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder, relative to it; none for a file."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _write(source: Path, out: Path, stated: Statement, name: str) -> list[str]:
    """Write the folder `out`, which must not exist; return the names of the other files."""
    out.mkdir()
    left_out = []
    for below in _files(source):
        if any(part.startswith(".") for part in below.parts):
            continue
        if _is_needed(below):
            (out / below.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / below, out / below)
        elif below.name not in (*RECORDS, CARD):
            left_out.append(str(below))
    card = source / CARD
    body = _body(card.read_text()) if card.exists() else MINIMAL.format(name=name)
    body = body.replace(NO_LICENCE, stated.licence)
    body += STATEMENT.format(statement=stated.data.strip() or UNSTATED)
    write_atomically(out / CARD, _header(source, stated) + body)
    return left_out


def _is_needed(below: Path) -> bool:
    return any(fnmatch(below.name, pattern) for pattern in NEEDED) and all(
        any(fnmatch(part, pattern) for pattern in FOLDERS) for part in below.parts[:-1]
    )


def _body(card: str) -> str:
    """Return a card without its YAML header."""
    before, *header = card.split("---\n", 2)
    return header[-1].lstrip("\n") if not before and len(header) == 2 else card


def _header(source: Path, stated: Statement) -> str:
    """Return the YAML header; values are JSON, since YAML reads `no` as false."""
    library, tag = _library(source)
    content: dict[str, Any] = {
        "language": list(stated.languages),
        "license": stated.licence,
        "library_name": library,
        "pipeline_tag": tag,
        "base_model": stated.base_model,
        "datasets": list(stated.datasets),
        "tags": ["sesame"],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in content.items() if value]
    return "\n".join(["---", *lines, "---", "", ""])


def _library(source: Path) -> tuple[str, str]:
    """Return the library that loads a folder, and the Hub's name of its task."""
    if (source / FILE).exists():
        model = read_object(source / FILE)
        library = "sesame" if model["form"] == "sesame" else "transformers"
        return library, TAGS[model["task"]["kind"]]
    if (source / "modules.json").exists():
        return "sentence-transformers", "sentence-similarity"
    if (source / "config.json").exists():
        names = read_object(source / "config.json").get("architectures") or [""]
        has_masked = any(end in str(names[0]) for end in ("ForPreTraining", "ForMaskedLM"))
        return "transformers", "fill-mask" if has_masked else "feature-extraction"
    return "sesame", "feature-extraction"


def _refuse_places(out: Path) -> None:
    """Raise SesameError if a card or a file of settings names a folder of this machine."""
    places = {str(Path.cwd()), str(Path.home())} - {"/"}
    for path in sorted(out.rglob("*")):
        if path.suffix not in TEXTS or path.stat().st_size > SEARCHED_BYTES:
            continue
        text = read_text(path, SEARCHED_BYTES)
        if any(place in text for place in places) or _has_path(path, text):
            raise SesameError(
                f"{path.relative_to(out)}: names a folder of this machine; remove that line from "
                "the model's folder or from the file of data=, or give another model"
            )


def _has_path(path: Path, text: str) -> bool:
    """Return True if a setting of a JSON file is an absolute path, such as `_name_or_path`."""
    found: list[object] = []
    if path.suffix == ".json":
        try:
            json.loads(text, object_hook=lambda content: found.extend(content.values()))
        except (ValueError, RecursionError) as error:
            raise SesameError(f"{path.name}: not JSON; copy the model's folder again") from error
    return any(isinstance(value, str) and ABSOLUTE.match(value) for value in found)
