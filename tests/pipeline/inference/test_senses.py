"""Senses: occurrences are found by words, scores are the vectors' own, and text stays home."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.errors import SesameError, UsageError
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from data_prep.vectors.table import VectorTable
from pipeline.commands.main import run
from pipeline.encoders import Encoder, InputBatch, StaticEncoder, random_encoder
from pipeline.inference.senses import (
    Senses,
    compare,
    corpus_occurrences,
    notebook_chart,
    read_occurrences,
)
from pipeline.inference.senses.compare import occurrence_vectors, view
from pipeline.inference.senses.page import describe, make_page, verdict, write_senses
from pipeline.inference.senses.projection import project
from pipeline.inference.senses.separation import (
    accuracy,
    cluster,
    distances,
    judge,
    nearest,
    silhouette,
)
from pipeline.models.bert.config import BertConfig
from pipeline.pages.blocks import Table

SENSES = {"river": ("water", "boat", "reed"), "money": ("loan", "cash", "rate")}
WORDS = ["the", "bank", *(word for words in SENSES.values() for word in words)]


class Averaging(StaticEncoder):
    """Static vectors, and above them a layer where words are mixed with their sentence's mean."""

    states = 2

    def forward(self, batch: InputBatch) -> list[Tensor]:
        own = super().forward(batch)[0]
        sentences = own.split(batch.lengths.tolist())
        mixed = [each + each.mean(0) for each in sentences]
        return [own, own.new_tensor(np.concatenate([each.detach() for each in mixed]))]


def table() -> VectorTable:
    return VectorTable(WORDS, np.eye(len(WORDS), dtype=np.float32))


def write_sentences(path: Path, count: int, labelled: bool = True) -> Path:
    """`count` sentences, half with words of one sense around the word, half with the other's."""
    lines = []
    for number in range(count):
        label = list(SENSES)[number % 2]
        around = SENSES[label]
        sentence = f"{around[number % 3]} the bank's {around[(number + number // 6) % 3]}"
        lines.append(f"{sentence}\t{label}" if labelled else sentence)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def senses(tmp_path_factory: pytest.TempPathFactory) -> Senses:
    """What a contextual and a static encoder see in 16 labelled sentences."""
    path = write_sentences(tmp_path_factory.mktemp("senses") / "bank.tsv", 16)
    encoders: dict[str, Encoder] = {
        "mixing": Averaging(table()),
        "st<a>tic": StaticEncoder(table()),
    }
    return compare("bank", read_occurrences(path, "bank"), encoders)


def test_words_are_found_whatever_case_and_marks(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("Bank! The bank's BANK-note, an embankment; banks.\n\nNone here.\nto bank on\n")
    found = read_occurrences(path, "Bank")
    assert [(each.place, tuple(each.words)[each.begin : each.end]) for each in found] == [
        ("line 1", ("Bank",)), ("line 1", ("bank",)), ("line 1", ("BANK",)), ("line 4", ("bank",)),
    ]  # fmt: skip
    assert found[1].text == "Bank! The »bank«'s BANK-note, an embankment; banks."
    (run_of_words,) = read_occurrences(path, "bank on")
    assert (run_of_words.begin, run_of_words.end) == (1, 3)
    assert read_occurrences(path, "river") == []
    with pytest.raises(UsageError, match="word=river: there is no occurrence"):
        compare("river", [], {})


def test_long_sentences_are_cut_about_the_word(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("before " * 500 + "bank" + " after" * 500)
    (found,) = read_occurrences(path, "bank")
    assert len(found.words) == len(found.text.split()) == 201
    assert (found.begin, found.text.split()[100]) == (100, "»bank«")


def test_a_file_is_labelled_throughout_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "bank.tsv"
    for content, line in (
        ("a bank\tx\na bank\n", 2), ("a bank\na bank\tx\n", 2), ("a bank\tx\ty\n", 1),
        ("a bank\t\n", 1),
    ):  # fmt: skip
        path.write_text(content)
        with pytest.raises(SesameError, match=rf"bank\.tsv:{line}: not as the lines before it"):
            read_occurrences(path, "bank")
    path.write_text("sentence\tlabel\r\na bank\tx\r\n")  # a heading has no occurrence
    assert [each.label for each in read_occurrences(path, "bank")] == ["x"]
    with pytest.raises(UsageError, match="word= : give a word"):
        read_occurrences(path, " ")


def test_corpora_give_the_same_sample_again_the_held_out_text_first(tmp_path: Path) -> None:
    for split, count in (("heldout", 3), ("train", 60)):
        texts = [f"{split} {n}: a bank.\nNothing here.\n".encode() for n in range(count)]
        origin = Origin("id", "file").encode()
        rows = [StoredSection(n, 0, text, origin, 2, 5) for n, text in enumerate(texts)]
        write_shard(tmp_path / f"{split}-00000.tar", rows)
    found = corpus_occurrences(tmp_path, "bank", 10)
    assert [each.words[0] for each in found] == ["heldout"] * 3 + ["train"] * 7
    assert found == corpus_occurrences(tmp_path, "bank", 10)
    numbers = [int(each.words[1]) for each in found[3:]]
    assert numbers == sorted(set(numbers)) != list(range(7)), "drawn, not the first ones"
    assert len(corpus_occurrences(tmp_path, "bank", 2)) == 2
    assert found[0].place == "document 0, part 0, line 1"


def test_scores_are_what_their_definitions_say() -> None:
    angles = np.array([0.0, 0.1, 1.5, 1.6, 0.05])
    apart = distances(np.stack([np.cos(angles), np.sin(angles)], 1))
    groups = np.array([0, 0, 1, 1, 1])
    assert accuracy(nearest(apart), groups) == pytest.approx(2 / 5), "the last is between two"
    own, other = apart[0, 1], apart[0, 2:].mean()
    expected = [(other - own) / max(own, other)]
    for one in range(1, 5):
        inside = apart[one, (groups == groups[one]) & (np.arange(5) != one)].mean()
        outside = apart[one, groups != groups[one]].mean()
        expected.append((outside - inside) / max(outside, inside))
    assert silhouette(apart, groups) == pytest.approx(np.mean(expected))
    assert silhouette(apart, np.zeros(5, int)) is None


def test_neighbours_as_near_as_each_other_share_the_vote() -> None:
    apart = distances(np.ones((4, 3)) / np.sqrt(3))
    np.testing.assert_allclose(nearest(apart), (1 - np.eye(4)) / 3)
    assert accuracy(nearest(apart), np.array([0, 0, 1, 1])) == pytest.approx(1 / 3)


def test_noise_is_no_better_than_chance_however_many_layers_are_tried() -> None:
    rng = np.random.default_rng(3)
    labels = np.arange(40) % 2
    clear = 0
    for _ in range(6):
        noise = rng.normal(size=(40, 13, 8)).astype(np.float32)
        near = [nearest(distances(noise[:, layer] / 10)) for layer in range(13)]
        clear += judge(near, labels).is_better_than_chance
    assert clear <= 1  # 13 layers judged one by one would be clear in half of all cases
    apart = labels[:, None] + 0.1 * rng.normal(size=(40, 8))
    assert judge([nearest(distances(apart / 10))], labels).p == pytest.approx(0.001)


def test_same_vectors_are_one_point_and_drawing_is_repeatable() -> None:
    rng = np.random.default_rng(0)
    unit = rng.normal(size=(12, 5))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unit[7] = unit[2]
    points = project(unit, distances(unit))
    assert points.shape == (12, 2) and np.isfinite(points).all()
    np.testing.assert_array_equal(points[7], points[2])
    assert len(np.unique(points, axis=0)) == 11
    np.testing.assert_array_equal(points, project(unit, distances(unit)))
    for count in range(1, 5):
        few = project(unit[:count], distances(unit[:count]))
        assert few.shape == (count, 2) and np.isfinite(few).all()


def test_clusters_are_found_and_counted() -> None:
    rng = np.random.default_rng(0)
    unit = np.repeat(np.eye(3), [4, 9, 6], axis=0) + 0.05 * rng.normal(size=(19, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    groups, value = cluster(unit, distances(unit))
    assert groups.tolist() == [2] * 4 + [0] * 9 + [1] * 6, "the largest first"
    assert value == pytest.approx(silhouette(distances(unit), groups))


def test_context_tells_senses_apart_and_static_vectors_do_not(senses: Senses) -> None:
    mixing, static = senses.views
    assert (mixing.best, mixing.judgement.accuracy, mixing.judgement.p) == (1, 1.0, 0.001)
    assert verdict(senses, mixing).startswith("tells the senses apart")
    assert mixing.layers[0].distinct == static.layers[0].distinct == 1
    assert static.judgement.p == 1
    assert "one vector for all occurrences" in verdict(senses, static)
    assert senses.labels == ["money", "river"]


def test_a_word_without_a_vector_has_one_for_all_occurrences(tmp_path: Path) -> None:
    path = write_sentences(tmp_path / "bank.tsv", 12)
    unknown = StaticEncoder(VectorTable(["water"], np.ones((1, 3), np.float32)))
    seen = compare("bank", read_occurrences(path, "bank"), {"unknown": unknown})
    assert seen.views[0].layers[0].distinct == 1
    assert "one vector for all occurrences" in verdict(seen, seen.views[0])


def test_an_encoder_that_knows_nothing_is_said_to(senses: Senses) -> None:
    noise = np.random.default_rng(1).normal(size=(16, 3, 8)).astype(np.float32)
    young = view("young", noise, senses.views[0].groups)
    assert "does not tell the senses apart, shuffled labels do as well" in verdict(senses, young)


def test_sentences_longer_than_the_encoder_keep_their_word(tmp_path: Path) -> None:
    pieces = [*Specials().names(), *WORDS]
    library = from_vocabulary(pieces, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(tmp_path, library, Specials(), None)
    model = BertConfig(layers=1, hidden=8, heads=1, intermediate=8, max_positions=16)
    encoder = random_encoder(model, tmp_path, seed=0)
    (tmp_path / "long.txt").write_text("water " * 30 + "bank" + " boat" * 30)
    found = read_occurrences(tmp_path / "long.txt", "bank")
    cut = [*["water"] * 6, "bank", *["boat"] * 6]
    expected = encoder.embed([cut])[0][6]
    np.testing.assert_allclose(occurrence_vectors(encoder, found)[0], expected, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("labelled", [True, False])
def test_few_occurrences_are_said(tmp_path: Path, count: int, labelled: bool) -> None:
    path = write_sentences(tmp_path / "bank.txt", count, labelled)
    few = compare("bank", read_occurrences(path, "bank"), {"mixing": Averaging(table())})
    assert "fewer than 10 occurrences" in verdict(few, few.views[0])
    assert "fewer than 10 occurrences" in make_page(few, "bank.txt", True).html


def test_one_label_and_none_are_said(tmp_path: Path) -> None:
    path = write_sentences(tmp_path / "bank.txt", 14, labelled=False)
    encoders = {"mixing": Averaging(table())}
    groups = compare("bank", read_occurrences(path, "bank"), encoders)
    assert groups.labels == [] and groups.views[0].judgement is None
    assert verdict(groups, groups.views[0]) in ("clear groups", "weak groups", "no clear groups")
    assert len(set(groups.views[0].groups.tolist())) > 1
    path.write_text("".join(f"{line}\tx\n" for line in path.read_text().splitlines()))
    one = compare("bank", read_occurrences(path, "bank"), encoders)
    assert verdict(one, one.views[0]) == "not judged: all occurrences have one label"
    assert "not judged: all occurrences" in make_page(one, "bank.txt", True).html


def test_text_is_shown_only_where_it_may_be(senses: Senses, tmp_path: Path) -> None:
    write_senses(senses, "bank.tsv", False, tmp_path / "hidden")
    written = "".join(path.read_text() for path in (tmp_path / "hidden").iterdir())
    words = [word for words in SENSES.values() for word in words]
    assert re.findall("|".join([*words, *SENSES]), written.replace("generated", "")) == []
    assert "label 2" in written and "line 16" in written
    write_senses(senses, "bank.tsv", True, tmp_path / "shown")
    page = (tmp_path / "shown" / "index.html").read_text()
    titles = re.findall(r"<title>river, line \d+: .*?</title>", page)
    assert len(titles) == 8 * 4, "in every drawing: two best layers and two layers of one encoder"
    assert titles[0] == "<title>river, line 1: water the »bank«&#x27;s water</title>"


def test_occurrences_are_listed_for_screens_without_hover(senses: Senses) -> None:
    def listed(show_text: bool) -> Table:
        [table] = make_page(senses, "bank.tsv", show_text).sections[-1].blocks
        assert isinstance(table, Table)
        return table

    shown = listed(True)
    assert [column.name for column in shown.columns] == ["label", "place", "sentence"]
    assert [row[0] for row in shown.rows] == ["money"] * 8 + ["river"] * 8
    assert shown.rows[8] == ["river", "line 1", "water the »bank«'s water"]
    assert listed(False).rows[8] == ["label 2", "line 1"]


def test_the_page_has_every_layer_and_names_as_text(senses: Senses, tmp_path: Path) -> None:
    page = make_page(senses, "<b>.tsv", True)
    assert [figure.name for figure in page.figures] == [
        "best-1", "best-2", "by-layer", "encoder-1-layer-0", "encoder-1-layer-1",
    ]  # fmt: skip
    assert "st&lt;a&gt;tic" in page.html and "st<a>tic" not in page.html
    assert "&lt;b&gt;.tsv" in page.html and "<script" not in page.html
    data = json.loads(json.dumps(describe(senses, "bank.tsv", True)))
    assert data["labels"] == ["money", "river"]
    assert len(data["occurrences"]) == len(data["encoders"][0]["layers"][1]["points"]) == 16


def test_a_notebook_gets_a_chart(senses: Senses) -> None:
    chart = notebook_chart(senses).to_dict()
    assert [len(row["hconcat"]) for row in chart["vconcat"]] == [2, 1]
    assert {len(rows) for rows in chart["datasets"].values()} == {16}


def test_the_command_writes_the_page_and_answers_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sentences(Path("bank.tsv"), 12)
    Path("v.txt").write_text("bank 1 2\nwater 3 4\n")
    asked = ["senses", "word=bank", "encoder=[v.txt,v.txt]", "sentences=bank.tsv"]
    assert run(asked) == 0
    said = capfd.readouterr()
    assert said.out.splitlines()[-1] == "senses/index.html"
    assert "v.txt (2)" in said.out and "12 occurrences in bank.tsv" in said.err
    page = Path("senses/index.html").read_text()
    assert "share.text=true shows the text" in page and "water" not in page
    assert run([*asked, "share.text=true", "output=shown"]) == 0
    assert "water the »bank«" in Path("shown/index.html").read_text()
    capfd.readouterr()
    for wrong, code, says in (
        ("sentences=none.tsv", 2, "sentences=none.tsv: there is no such file"),
        ("sentences=", 2, "no encoder here has a corpus in this store"),
        ("word=", 2, "word: name the word to look at"),
        ("word=river", 1, "word=river: does not occur in bank.tsv"),
        ("count=none", 2, "count=none: must be a number"),
        ("output=none/page", 2, "output=none/page: must be a new or existing folder"),
        ("encoder=nobody", 2, "encoder=nobody: no run"),
        ("encoder=tfidf", 2, "encoder=tfidf: has no vectors of words"),
    ):
        assert run([*asked, wrong]) == code
        assert says in capfd.readouterr().err
