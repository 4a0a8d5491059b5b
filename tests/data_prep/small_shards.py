"""Small corpora, sharded: what the tests of the stage share."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from data_prep.config import CorpusConfig
from data_prep.corpus.build import make_shards
from data_prep.corpus.shard_format import Section, parts, read_sections

PIECE_BYTES = 12_000


def sentence(rng: random.Random) -> str:
    words = ["the", "river", "of", "old", "stones", "sang", "to", "Åsa", "in", "spring", "again"]
    return " ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + "."


def document(rng: random.Random) -> str:
    paragraphs = [
        [sentence(rng) for _ in range(rng.randint(1, 6))] for _ in range(rng.randint(2, 4))
    ]
    return "\n\n".join(" ".join(paragraph) for paragraph in paragraphs)


def config_for(paths: Any, **values: Any) -> CorpusConfig:
    return CorpusConfig(**{"paths": paths, "workers": 1, **values})


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sections(folder: Path, split: str = "train") -> list[Section]:
    return [
        section
        for part in parts(folder, split)
        for section in read_sections(part.path, part.start, part.end)
    ]


def everything(folder: Path) -> list[Section]:
    return sorted(
        sections(folder) + sections(folder, "heldout"), key=lambda s: (s.document, s.section)
    )


def shard(out: Path, paths: Any, piece_bytes: int = PIECE_BYTES, **values: Any) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    return make_shards(config_for(paths, **values), out, piece_bytes)


def write_documents(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


KILLED = """
import json, os, signal, sys
from pathlib import Path
from data_prep.config import CorpusConfig
from data_prep.corpus.build import make_shards
keys, out, left, piece_bytes = json.loads(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
rename = os.replace
def rename_until_killed(source, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = rename_until_killed
make_shards(CorpusConfig(**keys, workers=1), out, piece_bytes)
"""


def kill_at_rename(
    out: Path, renames: int, keys: dict[str, Any], piece_bytes: int = PIECE_BYTES, modules: str = ""
) -> int:
    """Run the stage in a process that is killed at its n-th rename; return its exit code.

    modules: a folder with Python modules that the config names.
    """
    script = f"import sys; sys.path.insert(0, {modules!r})\n{KILLED}" if modules else KILLED
    arguments = [json.dumps(keys), str(out), str(renames), str(piece_bytes)]
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True
    ).returncode
