"""The report: one page that is whole, safe, deterministic, and keeps text at home."""

import json
import re
import shutil
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from data_prep.errors import SesameError
from pipeline.pages import charts, wording
from pipeline.pages.page import breakable
from pipeline.report.collect import READABLE, collect
from pipeline.stages import STAGES
from tests.pipeline.reported import WORDS, PageReader, SampleRun, make_page

HOSTILE = '<script>alert("x")</script> \' & \u202eרע <b>🦊'


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleRun:
    """A whole run."""
    return SampleRun(tmp_path_factory.mktemp("sample")).write_all()


@pytest.fixture(scope="module")
def whole(sample: SampleRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about a whole run, with text."""
    return make_page(sample, tmp_path_factory.mktemp("report") / "out", share_text=True)


def page_of(out: Path) -> str:
    return (out / "index.html").read_text()


def all_text(out: Path) -> str:
    return "".join(path.read_text() for path in sorted(out.iterdir()))


def test_the_page_has_every_section(whole: Path) -> None:
    text = PageReader(whole).text
    for said in (
        "What was run", "x86_64, 2 cores", "7\u202fmin 11\u202fs", "2.9.0",
        "Corpus", "33,530", "duplicate", "6.3\u202f%",
        "Paragraphs dropped", "88,004", "repeats an earlier one", "2,001",
        "Tokenizer", "1.27", "0.04\u202f%",
        "Examples", "14,431", "95.9\u202f%", "50.2\u202f%", "80.3\u202f%",
        "Pretraining", "1,500", "more frequent label would be right for 50.6\u202f%",
        "the loss 9.1 is beyond 7.2", "2 × zero2", "1.15\u202fGB", "97.0\u202f%",
        "Downstream tasks", "72.0 ± 0.4", "61.0 ± 0.4", "+11.0", "clearly ahead",
        "How to go on", "sesame finetune encoder=sample task=polarity",
    ):  # fmt: skip
        assert " ".join(said.split()) in text, said


@pytest.mark.parametrize("is_counted", [True, False])
def test_groups_and_unread_files_of_a_corpus_are_shown(tmp_path: Path, is_counted: bool) -> None:
    run = SampleRun(tmp_path / "store")
    run.config = replace(run.config, corpus=replace(run.config.corpus, group_field="patient"))
    more = {"groups": {"train": 4_321, "heldout": 77, "documents_without": 13}}
    run.write_shard(more | {"unread_files": {"hidden": 2, "not_a_file": 1}} if is_counted else {})
    out = make_page(run, tmp_path / "out")
    text = PageReader(out).text
    if is_counted:
        assert "groups4,32177" in text and "files not read3hidden 2, not a file 1" in text
        assert "groups in both splits0of 4,398" in text and "without a group13" in text
    else:
        assert "groupsnot counted" in text


def test_groups_of_a_task_are_shown(tmp_path: Path, whole: Path) -> None:
    run = SampleRun(tmp_path / "store")
    groups = {"train": 411, "dev": 52, "test": 98, "examples_without": 3}
    run.write_finetuning("polarity", "pretrain", 1, more={"groups": groups})
    text = PageReader(make_page(run, tmp_path / "out")).text
    assert "polarity: groups" in text and "411529803" in text
    assert "polarity: groups" not in PageReader(whole).text


def test_the_page_needs_no_script_and_no_network(whole: Path) -> None:
    reader = PageReader(whole)
    assert not {"script", "iframe", "object", "embed", "form"} & set(reader.tags)
    for name, value in reader.attributes:
        assert not name.startswith("on"), name
        if name in ("href", "src", "xlink:href", "action"):
            assert value.startswith(("#", "data:")), value
    assert "@import" not in page_of(whole)
    assert not re.search(r"url\((?!#)", page_of(whole))


def test_figures_stand_in_the_page_and_beside_it(whole: Path) -> None:
    figures = sorted(whole.glob("*.svg"))
    assert len(figures) == 18
    page = page_of(whole)
    ids: list[str] = []
    for path in figures:
        svg = path.read_text()
        assert svg in page
        root = ElementTree.fromstring(svg)
        assert root.attrib["viewBox"]
        ids += [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids)), "ids of two drawings clash in one page"


def test_restarts_are_marked(whole: Path) -> None:
    dashed = 'stroke-dasharray="2,3"'
    assert dashed in (whole / "tokens-per-second.svg").read_text()
    assert dashed not in (whole / "task-1.svg").read_text()
    assert "restarts" in PageReader(whole).text


def test_the_same_inputs_give_the_same_bytes_wherever_they_lie(
    sample: SampleRun, whole: Path, tmp_path: Path
) -> None:
    root = sample.store.root
    shutil.copytree(root, tmp_path / "copy")
    moved = copy(sample)
    moved.inputs = {
        role: tmp_path / "copy" / path.relative_to(root) for role, path in sample.inputs.items()
    }
    again = make_page(moved, tmp_path / "out", share_text=True)
    assert all_text(again) == all_text(whole)
    assert str(root) not in all_text(whole)


def test_hostile_strings_are_text(tmp_path: Path) -> None:
    words = [*WORDS]
    words[1] = HOSTILE.replace(" ", "")
    run = SampleRun(tmp_path / "store", words)
    run.write_examples(run.write_tokenizer())
    for seed in (1, 2):
        run.write_finetuning(HOSTILE, HOSTILE, seed)
    out = make_page(run, tmp_path / "out", share_text=True, title=HOSTILE)
    reader = PageReader(out)
    assert "script" not in reader.tags and "b" not in reader.tags
    assert reader.text.count(" ".join(HOSTILE.split())) >= 3
    assert words[1] in reader.text
    figures = list(out.glob("*.svg"))
    assert figures
    for path in figures:
        tags = {element.tag.split("}")[1] for element in ElementTree.parse(path).iter()}
        assert "script" not in tags and "b" not in tags


def canaries(run: SampleRun) -> Iterator[str]:
    """Put names that must stay home wherever the run has text."""
    run.config = replace(
        run.config,
        corpus=replace(run.config.corpus, exclude=["canarydocument"], where={"x": "canaryfield"}),
        task=replace(run.config.task, labels=["canarylabel", "b"], test_documents=["canarypage"]),
    )
    run.task_words = ["canaryinput", "sings"]
    yield from ("canaryword", "canarydocument", "canaryfield", "canarylabel", "canarypage")
    yield "canaryinput"


@pytest.mark.parametrize("share_text", [False, True])
def test_text_stays_home_unless_shared(tmp_path: Path, share_text: bool) -> None:
    run = SampleRun(tmp_path / "store", ["canaryword", *WORDS])
    names = list(canaries(run))
    run.write_shard()
    run.write_examples(run.write_tokenizer())
    for task in ("polarity", "mentions"):  # labels; tags and entity types
        run.write_finetuning(task, "pretrain", 1)
    written = all_text(make_page(run, tmp_path / "out", share_text))
    assert [name in written for name in names] == [share_text] * len(names)


def test_sections_without_outputs_are_left_out(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "store")
    run.write_shard()
    out = make_page(run, tmp_path / "out")
    text = PageReader(out).text
    assert "Corpus" in text and "How to go on" in text
    for absent in ("Pretraining", "Downstream tasks", "Examples"):
        assert absent not in text


def test_labels_may_have_slashes(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_pretraining()
    path = run.inputs["pretrain"]
    roles = {"pretrain/models/mine": path, "a/pretrain": path, "b/pretrain/models/mine": path}
    named = [(made.run, made.label) for made in collect(roles).made]
    assert named == [("", "models/mine"), ("a", ""), ("b", "models/mine")]


def test_an_encoder_without_pairs_has_no_pair_curves(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "store")
    metrics = [{"step": step, "mlm_loss": 5.0, "pair_loss": None} for step in (1, 2)]
    run.finish(
        "pretrain", ("model", "optim", "trainer", "pretrain"), {},
        {"metrics.jsonl": "".join(json.dumps(line) + "\n" for line in metrics)},
    )  # fmt: skip
    out = make_page(run, tmp_path / "out")
    assert [path.stem for path in out.glob("*.svg")] == ["mlm-loss"]


def test_every_current_format_can_be_shown() -> None:
    """A new format fails here: decide whether the page still reads the one before it."""
    current = {name: stage.format for name, stage in STAGES.items() if name != "report"}
    assert {name: formats[-1] for name, formats in READABLE.items()} == current


@pytest.mark.parametrize("older", [1, 3])
def test_an_output_that_cannot_be_read_any_more_is_left_out_and_named(
    older: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = SampleRun(tmp_path / "store")
    run.write_finetuning("mentions", "pretrain", 1, run="left")
    run.formats["layers"] = older
    old = run.finish("layers/old", ("layers",), {"choices": {"last": [0.5]}})
    run.of_run("left", "layers/old")
    text = PageReader(make_page(run, tmp_path / "out")).text
    sentence = f"{old.reference}) has format {older} of another version of Sesame"
    assert sentence in text and "Run `sesame layers` with the same settings" in text
    assert "Downstream tasks" in text and "BiLSTM" not in text
    assert sentence in "".join(capsys.readouterr())


def test_damage_is_named(tmp_path: Path) -> None:
    run = SampleRun(tmp_path / "store")
    run.write_pretraining()
    journal = run.inputs["pretrain"] / "metrics.jsonl"
    journal.write_text(journal.read_text() + "{torn")
    with pytest.raises(SesameError, match=rf"{re.escape(str(journal))}, line \d+: not JSON"):
        make_page(run, tmp_path / "out")
    (run.inputs["pretrain"] / "run.json").unlink()
    with pytest.raises(SesameError, match=r"run\.json: cannot be read"):
        make_page(run, tmp_path / "again")


def test_long_curves_are_thinned_to_means_inside_their_bounds() -> None:
    points = [(float(step), float(step % 7)) for step in range(100_000)]
    thinned = charts.thin(points)
    assert len(thinned) <= charts.MOST_POINTS
    assert all(point.low <= point.y <= point.high for point in thinned)
    assert (thinned[0].low, thinned[0].high) == (0.0, 6.0)
    assert charts.thin(points[:5]) == [charts.Point(x, y, y, y) for x, y in points[:5]]


@pytest.mark.parametrize("other", [1, 3])
def test_a_curve_of_one_point_is_a_dot(other: int) -> None:
    """Also beside longer curves, such as the diagonal of a calibration."""
    one = charts.Series("one", [(2.0, 5.0)], colour=0)
    more = charts.Series("more", [(float(x), 4.0) for x in range(1, 1 + other)], colour=4)
    svg = charts.lines("c", "title", [one, more])
    dots = re.search(r'<g class="mark-symbol role-mark.*?</g>', svg, re.DOTALL)
    assert dots is not None and dots[0].count("<path") == (2 if other == 1 else 1)


def test_numbers_read_well() -> None:
    assert [wording.short(value) for value in (0, 7, 3650.4, 12_345, 999_999, 6.04e6, 0.1234)] == [
        "0", "7", "3,650", "12.3\u202fk", "1\u202fM", "6.04\u202fM", "0.123",
    ]  # fmt: skip
    assert [wording.share(part) for part in (0, 0.00012, 0.5, 0.99993, 1)] == [
        "0.0\u202f%", "0.012\u202f%", "50.0\u202f%", "99.99\u202f%", "100.0\u202f%",
    ]  # fmt: skip
    assert wording.share(1, 0) == "–"
    assert [wording.enumerated(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "", "a", "a and b", "a, b and c",
    ]  # fmt: skip
    assert [wording.duration(value) for value in (3.44, 59.97, 431, 7_300)] == [
        "3.4\u202fs", "1\u202fmin 0\u202fs", "7\u202fmin 11\u202fs", "2\u202fh 1\u202fmin",
    ]  # fmt: skip


def test_long_names_may_break_and_stay_text() -> None:
    assert breakable("trainer.max_steps") == "trainer.<wbr>max_<wbr>steps"
    assert breakable("0.0005") == "0.0005"
    assert breakable("<b>.<i>_") == "&lt;b&gt;.&lt;i&gt;_"


def test_dark_colours_are_known_for_every_light_one(whole: Path) -> None:
    drawn: set[str] = set()
    for path in whole.glob("*.svg"):
        used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', path.read_text()))
        assert used <= set(charts.DARK), path.name
        drawn |= used
    assert len(drawn) > 3
