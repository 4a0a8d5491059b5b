"""The cost of every data pass grows linearly with the corpus, and its memory does not grow.

The units are made small, so that a corpus of a few hundred kilobytes has many of them.
"""

from pathlib import Path

import pytest

from pipeline.bench.footprint import Footprint, measure_footprint
from pipeline.bench.scale import FACTORS, Footprints, Settings, measure_stages

SMALLEST = 40_000
SETTINGS = Settings(
    shard_size=60_000, vocab_size=150, unit_bytes=16_000, chunk_rows=16, document_bytes=1_000,
    words=300, traced=True,
)  # fmt: skip
SMALL_UNITS = {
    "data_prep.corpus.clean.SEGMENT_BYTES": 16_000,
    "data_prep.corpus.shard_format.CUT_BYTES": 6_000,
    "data_prep.corpus.deduplicate.HELD_ROWS": 512,
    "data_prep.corpus.deduplicate.MOST_BUCKETS": 8,
    "data_prep.corpus.deduplicate.BATCH_ROWS": 64,
    "data_prep.corpus.repeats.COMPARED_ROWS": 64,
    "data_prep.corpus.matching.GROUP_FILES": 4,
    "data_prep.corpus.matching.MOST_GROUPS": 4,
    "data_prep.corpus.matching.MOST_BUCKETS": 4,
    "data_prep.corpus.matching.BLOCK_ROWS": 500,
    "data_prep.tokenizers.counting.UNIT_BYTES": 16_000,
    "data_prep.tokenizers.counting.BLOCK": 4_000,
    "data_prep.examples.partners.STRETCHES": 1,
    "data_prep.examples.retokenize.MOST_PARTS": 1,
    "data_prep.examples.streams.SCATTER_BYTES": 32_000,
    "data_prep.examples.streams.WORDS_COMPARED": 0,
    "data_prep.examples.sorting.RUN_TOKENS": 2_000,
    "data_prep.examples.sorting.MOST_RANGES": 2,
}
COUNTS = ("opens", "read", "written", "files")
STAGES = ("shard", "wordpiece", "words", "pairs", "streams")
# What one unit or file more may add, where a pass has only a few.
STEP = {"opens": 20, "read": 100_000, "written": 100_000, "files": 20}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> list[Footprints]:
    """Five stages of four corpora, each traced: the slowest fixture of this folder."""
    root = tmp_path_factory.mktemp("scale")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_UNITS.items():
            patch.setattr(name, value)
        patch.setattr("os.fsync", lambda descriptor: None)
        measure_stages(SMALLEST // 4, root / "warm", SETTINGS)
        return [measure_stages(SMALLEST * n, root / str(n), SETTINGS) for n in FACTORS]


def of_stage(found: Footprints, stage: str) -> Footprints:
    return {name: each for name, each in found.items() if name.partition(" ")[0] == stage}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("stage", STAGES)
def test_counts_grow_linearly_with_the_corpus(
    stage: str, count: str, grown: list[Footprints]
) -> None:
    for name in of_stage(grown[-1], stage):
        *_, half, whole = (getattr(each[name], count) for each in grown)
        assert whole <= 1.05 * 2 * half + STEP[count], f"{name}: {count} {half}, then {whole}"


@pytest.mark.parametrize("stage", STAGES)
def test_memory_does_not_grow_with_the_corpus(stage: str, grown: list[Footprints]) -> None:
    """A merge holds one description per unit; nothing holds the units' content.

    Descriptions take 2,500 to 3,200 bytes each (when Python collects garbage varies); the text of a
    unit takes 7,000 more.
    """
    *_, half, whole = (of_stage(each, stage) for each in grown)
    units = sum(each.units for each in whole.values()) - sum(each.units for each in half.values())
    for name in whole:
        allowed = 4_000 * units if name.endswith("merge") else 4 * SMALLEST // 2
        growth = whole[name].memory - half[name].memory
        assert growth < allowed + 0.02 * half[name].memory, f"{name}: {growth} bytes more"


def test_every_pass_is_measured(grown: list[Footprints]) -> None:
    passes = {stage: [name.split()[1] for name in of_stage(grown[0], stage)] for stage in STAGES}
    assert passes == {
        "shard": [
            "clean",
            "sign_documents",
            "match_documents",
            "sign_near",
            "match_near",
            "lend_near",
            "compare_near",
            "sign_paragraphs",
            "match_paragraphs",
            "place",
            "write",
            "merge",
        ],
        "wordpiece": ["count", "measure", "merge"],
        "words": ["count", "measure", "merge"],
        "pairs": ["tokenize", "pairs", "rows", "write", "merge"],
        "streams": ["tokenize", "scatter", "gather", "write", "merge"],
    }


def test_a_footprint_counts_what_was_done(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "folder").mkdir()
        for number in range(3):
            (tmp_path / "folder" / str(number)).write_bytes(bytes(10_000))
        assert len((tmp_path / "folder" / "0").read_bytes()) == 10_000
        Path("/dev/null").write_bytes(b"elsewhere")

    found = measure_footprint(work, tmp_path, traced=True)
    assert (found.opens, found.files) == (4, 4)
    assert 30_000 <= found.written < 31_000 and 10_000 <= found.read < 12_000
    assert 10_000 < found.memory < 100_000
    assert measure_footprint(lambda: None, tmp_path).memory > 1_000_000, "of the whole process"


def test_work_that_grows_with_the_square_is_noticed(tmp_path: Path) -> None:
    def work(units: int) -> None:
        for unit in range(units):
            (tmp_path / str(unit)).touch()
            for other in range(unit):
                (tmp_path / str(other)).read_bytes()

    found: list[Footprint] = [
        measure_footprint(lambda size=size: work(size), tmp_path)
        for size in (20, 40)  # type: ignore[misc]
    ]
    assert found[1].opens > 1.05 * 2 * found[0].opens + STEP["opens"]
