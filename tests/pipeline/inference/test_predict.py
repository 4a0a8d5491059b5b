"""A fine-tuned model is kept, found, and answers files, from the command line and from Python."""

import io
import json
import random
import re
import shutil
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from data_prep.errors import SesameError, UsageError
from pipeline import load_encoder, load_model
from pipeline.commands.main import run
from pipeline.encoders import random_encoder
from pipeline.inference import predicting
from pipeline.inference.items import read_items
from pipeline.inference.models import FinetunedModel, read_model
from pipeline.inference.predicting import predict_file
from pipeline.inference.results import Choice, Entity, Label, Labels, Tags, tags_of
from pipeline.models.bert.config import BertConfig
from pipeline.store.outputs import Store
from pipeline.tasks.brat import read_brat
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = ["good", "bad", "film", "plot", "anna", "bo", "in", "lund", "."]
BERT = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32)
TASKS = {
    "mood": "name: mood\ntrain: mood.tsv\n",
    "alike": "name: alike\ntrain: alike.tsv\nkind: regress\nmetric: pearson\n"
    "text_a: a\ntext_b: b\n",
    "names": "name: names\ntrain: names.conll\nkind: tag\nreader: conll\nmetric: entity_f1\n",
    "topics": "name: topics\ntrain: topics.tsv\nkind: multilabel\nmetric: micro_f1\n",
    "ends": "name: ends\ntrain: ends.tsv\nkind: choice\ntext_a: begin\n"
    "choices: [one, two, three]\n",
    "notes": "name: notes\ntrain: notes.jsonl\nkind: tag\nreader: spans\nmetric: entity_f1\n",
    "paged": "name: paged\ntrain: paged.conll\nkind: tag\nreader: conll\nmetric: entity_f1\n"
    "context: document\n",
    "quiz": "name: quiz\ntrain: quiz.json\ndev: quiz.json\nkind: span\nreader: squad\nmetric: f1\n",
}
SETTINGS = [
    "experiment=bert_tiny", "name=mine", "finetune.epochs=12", "finetune.lr=0.01",
    "finetune.max_seq_length=32", "finetune.batch_size=16",
]  # fmt: skip


def write_task_files(folder: Path) -> None:
    draw = random.Random(0)
    texts = [draw.choices(WORDS[:4], k=draw.randint(2, 6)) for _ in range(120)]
    moods = [f"{' '.join(words)}\t{'up' if 'good' in words else 'down'}" for words in texts]
    (folder / "mood.tsv").write_text("\n".join(["sentence\tlabel", *moods, ""]))
    pairs = [f"{' '.join(words)}\t{words[0]}\t{len(words) / 2}" for words in texts]
    (folder / "alike.tsv").write_text("\n".join(["a\tb\tlabel", *pairs, ""]))
    topics = [f"{' '.join(w)}\t{','.join(t for t in ('good', 'film') if t in w)}" for w in texts]
    (folder / "topics.tsv").write_text("\n".join(["sentence\tlabel", *topics, ""]))
    ends = [f"bo\t{' '.join(w)}\t{' '.join(w[::-1])} good\t\t1" for w in texts[:40]]
    (folder / "ends.tsv").write_text("\n".join(["begin\tone\ttwo\tthree\tlabel", *ends, ""]))
    sentences = [draw.choices(WORDS, k=draw.randint(3, 8)) for _ in range(120)]
    tagged = [
        "\n".join(f"{word} {'B-PER' if word in ('anna', 'bo') else 'O'}" for word in words)
        for words in sentences
    ]
    (folder / "names.conll").write_text("\n\n".join([*tagged, ""]))
    (folder / "paged.conll").write_text("-DOCSTART- O\n\n" + "\n\n".join([*tagged[:30], ""]))
    lines = [{"text": " ".join(words), "spans": _spans(words)} for words in sentences]
    (folder / "notes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    questions = [
        {
            "context": " ".join(words),
            "qas": [
                {
                    "id": f"q{number}",
                    "question": "good film",
                    "answers": [{"text": words[0], "answer_start": 0}],
                }
            ],
        }
        for number, words in enumerate(sentences[:30])
    ]
    (folder / "quiz.json").write_text(json.dumps({"data": [{"paragraphs": questions}]}))


def _spans(words: list[str]) -> list[dict[str, Any]]:
    ends = accumulate(len(word) + 1 for word in words)
    places = [(end - len(word) - 1, end - 1, word) for word, end in zip(words, ends, strict=True)]
    names = ("anna", "bo")
    return [{"start": a, "end": b, "label": "PER"} for a, b, word in places if word in names]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a kept model for each kind of task."""
    folder = tmp_path_factory.mktemp("user")
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    write_toy_tokenizer(tokenizer, WORDS)
    (folder / "encoder").mkdir()
    random_encoder(BERT, tokenizer, seed=0).save(folder / "encoder")
    write_task_files(folder)
    (folder / "conf" / "task").mkdir(parents=True)
    for name, text in TASKS.items():
        (folder / "conf" / "task" / f"{name}.yaml").write_text(f"{text}data_dir: {folder}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OMP_NUM_THREADS", "1")
        for task in TASKS:
            assert run(["finetune", *SETTINGS, "encoder=./encoder", f"task={task}"]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def predicted(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_labels_are_predicted_with_their_probabilities() -> None:
    good, bad, empty = load_model("mine/mood").predict(["good good film", "bad plot", ""])
    assert isinstance(good, Label) and isinstance(bad, Label) and isinstance(empty, Label)
    assert (good.label, bad.label) == ("up", "down")
    assert sum(good.scores.values()) == pytest.approx(1) and good.scores["up"] == good.score
    assert load_model("mine/mood").predict([]) == []


def test_entities_have_the_characters_of_the_given_text() -> None:
    text = "film (anna), bo  in lund."
    [tags, of_words] = load_model("mine/names").predict([text, ["anna", "in", "lund"]])
    assert isinstance(tags, Tags) and isinstance(of_words, Tags)
    assert [text[each.start : each.end] for each in tags.entities] == ["anna", "bo"]
    assert [each.text for each in tags.entities] == ["anna", "bo"]
    [entity] = of_words.entities
    assert entity == Entity("PER", 0, 4, "anna", of_words.scores[0])
    assert len(tags.words) == len(tags.tags) == len(tags.scores)


def test_a_probability_is_the_softmax_of_the_logits_and_an_entity_has_its_least() -> None:
    model = load_model("mine/names")
    words = ["anna", "in", "lund"]
    [tags] = model.predict([words])
    logits_UC = model.finetuned.logits([Example(tuple(words), None, "", 0)]).astype(np.float64)
    shares_UC = np.exp(logits_UC) / np.exp(logits_UC).sum(1, keepdims=True)
    assert isinstance(tags, Tags) and tags.scores == pytest.approx(shares_UC.max(1), abs=1e-6)
    places = [(0, 4), (5, 7), (8, 12)]
    made = tags_of(["B-PER", "I-PER", "O"], [0.9, 0.4, 0.2], words, places, "anna in lund")
    assert made.entities == [Entity("PER", 0, 7, "anna in", 0.4)]


@torch.no_grad()
def test_what_is_predicted_is_what_plain_transformers_answers(tmp_path: Path) -> None:
    """On new texts, from the command line, without any file or code of ours."""
    texts = ["anna film bo in lund.", "bo, bo!", "plot", "the Anna of Lund (bad)"]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    files = f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'out.jsonl'}"
    assert run(["predict", "model=mine/names", *files]) == 0
    folder = load_model("mine/names").folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForTokenClassification.from_pretrained(folder).eval()
    for text, answer in zip(texts, predicted(tmp_path / "out.jsonl"), strict=True):
        encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        starts = encoded.pop("offset_mapping")[0, :, 0].tolist()
        shares = network(**encoded).logits[0].softmax(-1)[1:-1]  # without [CLS] and [SEP]
        tags = [network.config.id2label[tag] for tag in shares.argmax(-1).tolist()]
        assert answer["tags"] == tags
        assert answer["scores"] == pytest.approx(shares.max(-1).values.tolist(), abs=1e-5)
        begun = [s for s, tag in zip(starts[1:-1], tags, strict=True) if tag.startswith("B-")]
        assert [entity["start"] for entity in answer["entities"]] == begun
    assert any(line["entities"] for line in predicted(tmp_path / "out.jsonl"))


def test_tags_learnt_from_spans_are_predicted_on_texts(tmp_path: Path) -> None:
    text = "film (anna), bo  in lund."
    [tags, nothing] = load_model("mine/notes").predict([text, ""])
    assert isinstance(tags, Tags) and isinstance(nothing, Tags) and nothing.tags == []
    assert [text[each.start : each.end] for each in tags.entities] == ["anna", "bo"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "spans": []}) + "\n")
    (tmp_path / "a.txt").write_text(f"film\n{text}\n")
    for name, output in (("a.jsonl", "out.jsonl"), ("a.txt", "a.ann")):
        files = f"input={tmp_path / name}", f"output={tmp_path / output}"
        assert run(["predict", "model=mine/notes", *files]) == 0
    [line] = predicted(tmp_path / "out.jsonl")
    assert [each["start"] for each in line["entities"]] == [6, 13]
    assert (tmp_path / "a.ann").read_text() == "T1\tPER 11 15\tanna\nT2\tPER 18 20\tbo\n"


def test_texts_that_are_too_long_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("good film\n" + "good " * 5_000 + "\nbad film\n")
    files = f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'out.jsonl'}"
    assert run(["predict", "model=mine/mood", *files]) == 0
    longest = load_model("mine/mood").finetuned.config.max_seq_length
    assert f"1 item was cut to the {longest} tokens" in capsys.readouterr().err
    assert run(["predict", "model=mine/names", *files]) == 0  # tags are found in all of it
    assert "cut to" not in capsys.readouterr().err
    assert len(predicted(tmp_path / "out.jsonl")[1]["tags"]) == 5_000


def test_an_interrupted_prediction_of_another_model_is_not_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds of a task have equal sizes and settings."""
    (tmp_path / "a.txt").write_text("good film\n")
    folder = load_model("mine/mood").folder
    for name in ("one", "other"):
        shutil.copytree(folder, tmp_path / name, copy_function=shutil.copyfile)
    files = f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'out.jsonl'}"
    begun = predicting._identity(load_model(tmp_path / "one"), str(tmp_path / "a.txt"))
    (tmp_path / "out.jsonl.part").write_text("")
    (tmp_path / "out.jsonl.part.json").write_text(json.dumps(begun))
    assert run(["predict", f"model={tmp_path / 'other'}", *files]) == 2
    assert "belongs to another model" in capsys.readouterr().err
    assert run(["predict", f"model={tmp_path / 'one'}", *files]) == 0


def test_texts_are_split_as_the_model_was_trained(place: Path) -> None:
    """A model that does not say how splits at punctuation, whatever the task says today."""
    line = {"text": "film @anna", "spans": [{"start": 6, "end": 10, "label": "PER"}]}
    (place / "at.jsonl").write_text(
        "".join(json.dumps(line | {"text": f"film @anna {n}"}) + "\n" for n in range(30))
    )
    own = ["evaluate", "experiment=bert_tiny", "task=notes", "task.train=at.jsonl"]
    assert run([*own, "model=mine/notes"]) == 1  # the span cuts the word @anna
    older = place / "older"
    shutil.copytree(load_model("mine/notes").folder, older)
    stated = json.loads((older / "finetuned.json").read_text())
    assert stated["task"].pop("word_split") == "addresses"
    (older / "finetuned.json").write_text(json.dumps(stated))
    assert run([*own, f"model={older}"]) == 0


def test_a_folder_of_texts_becomes_one_that_brat_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    (notes / "more").mkdir(parents=True)
    (notes / "a.txt").write_text("film\nanna in lund\n")
    (notes / "more" / "b.txt").write_text("bo\n")
    files = [f"input={notes}", f"output={tmp_path / 'out'}"]
    assert run(["predict", "model=mine/notes", *files]) == 0
    made = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.*"))
    assert [str(path) for path in made] == ["a.ann", "a.txt", "more/b.ann", "more/b.txt"]
    assert (tmp_path / "out" / "a.ann").read_text() == "T1\tPER 5 9\tanna\n"
    assert (tmp_path / "out" / "a.txt").read_text() == (notes / "a.txt").read_text()
    read = list(read_brat(TaskFile(tmp_path / "out"), TaskConfig(kind="tag", reader="brat")))
    assert [example.gold for example in read] == [("O",), ("B-PER", "O", "O"), ("B-PER",)]
    for wrong in (files[0], f"output={notes / 'out'}"), (f"input={tmp_path / 'out' / 'none'}",):
        assert run(["predict", "model=mine/notes", *wrong]) == 2
    assert run(["predict", "model=mine/mood", *files]) == 2
    assert run(["predict", "model=mine/notes", *files]) == 2, "corrected annotations are kept"
    assert "has files already" in capsys.readouterr().err


def test_a_folder_of_texts_goes_on_after_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, out = tmp_path / "notes", tmp_path / "out"
    notes.mkdir()
    (notes / "a.txt").write_bytes(b"\xef\xbb\xbfanna\rfilm\r\nbo\n")  # a mark, a bare return
    (notes / "b.txt").write_bytes(b"bo\n{bo}\n\xff\n")
    files = [f"input={notes}", f"output={out}"]
    assert run(["predict", "model=mine/notes", *files]) == 1
    assert f"{notes / 'b.txt'}:3: not UTF-8" in capsys.readouterr().err
    assert (out / "a.ann").read_text() == "T1\tPER 1 5\tanna\nT2\tPER 12 14\tbo\n"
    text = (out / "a.txt").read_bytes().decode()
    assert (text[1:5], text[12:14]) == ("anna", "bo"), "brat counts the mark"
    before = (out / "a.ann").stat().st_mtime_ns
    (notes / "b.txt").write_bytes(b"bo\n{bo}\nfilm\n")
    assert run(["predict", "model=mine/notes", *files]) == 0
    assert "5 items, 2 of them before" in capsys.readouterr().err
    assert (out / "a.ann").stat().st_mtime_ns == before
    assert (out / "b.ann").read_text() == "T1\tPER 0 2\tbo\nT2\tPER 4 6\tbo\n"
    assert sorted(path.name for path in out.iterdir()) == ["a.ann", "a.txt", "b.ann", "b.txt"]


def test_a_text_that_was_changed_is_predicted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted prediction kept the annotations of the text as it was before."""
    notes, out = tmp_path / "notes", tmp_path / "out"
    notes.mkdir()
    for name, text in {"a": b"anna\n", "b": b"bo\n", "c": b"\xff\n"}.items():
        (notes / f"{name}.txt").write_bytes(text)
    files = [f"input={notes}", f"output={out}"]
    assert run(["predict", "model=mine/notes", *files]) == 1, "stops at the last"
    (notes / "a.txt").write_bytes(b"film anna\n")
    (notes / "c.txt").write_bytes(b"bo\n")
    (notes / "b.txt").rename(tmp_path / "b.txt")
    assert run(["predict", "model=mine/notes", *files]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{out / 'b.txt'} was predicted before, but its text is not in the input" in said
    (tmp_path / "b.txt").rename(notes / "b.txt")
    assert run(["predict", "model=mine/notes", *files]) == 0
    assert f"{notes / 'a.txt'}: was changed" in " ".join(capsys.readouterr().err.split())
    made = {path.name: path.read_text() for path in out.glob("*.ann")}
    assert made == {
        "a.ann": "T1\tPER 5 9\tanna\n", "b.ann": "T1\tPER 0 2\tbo\n",
        "c.ann": "T1\tPER 0 2\tbo\n",
    }  # fmt: skip
    assert (out / "a.txt").read_bytes() == b"film anna\n"


def test_a_model_of_documents_predicts_in_documents(place: Path, tmp_path: Path) -> None:
    words = ["anna", "bo", "film", "lund"]
    text = "-DOCSTART- O\n\nanna\nbo\n\nfilm\n-DOCSTART- O\nlund\n"
    (tmp_path / "a.conll").write_text(text)
    items = [line.item for line in read_items(str(tmp_path / "a.conll"), read_model("mine/paged"))]
    assert [item.texts for item in items] == [("anna", "bo"), ("film",), ("lund",)]
    assert [list(item.document.words) for item in items] == [words[:3], words[:3], words[3:]]
    plain = read_items(str(tmp_path / "a.conll"), read_model("mine/names"))
    assert [line.item for line in plain] == [["anna", "bo"], ["film"], ["lund"]]
    output = tmp_path / "out.conll"
    files = f"input={tmp_path / 'a.conll'}", f"output={output}"
    assert run(["predict", "model=mine/paged", *files]) == 0
    assert [line.split("\t")[0] for line in output.read_text().split()[::2]] == words


def test_answers_have_offsets_and_rivals() -> None:
    passage = "bo in film lund"
    [answer] = load_model("mine/quiz").predict([("good film", passage)])
    assert answer.text == passage[answer.start : answer.end]
    assert len(answer.n_best) > 1 and answer.n_best[0].text == answer.text
    assert all(passage[each.start : each.end] == each.text for each in answer.n_best)


def test_choices_are_predicted_with_the_probabilities_of_all() -> None:
    choices = ["bad film", "film good", "film plot"]
    two, three = load_model("mine/ends").predict([("bo", choices[:2]), ("bo", choices)])
    assert isinstance(two, Choice) and isinstance(three, Choice)
    assert (two.number, two.label, two.text) == (1, "1", "film good")
    assert len(two.scores) == 2 and len(three.scores) == 3
    assert sum(three.scores) == pytest.approx(1) and max(three.scores) == three.score
    with pytest.raises(UsageError, match="an item must be a context and its choices"):
        load_model("mine/ends").predict([("bo", "bad film")])


def test_several_labels_are_predicted_with_the_probability_of_each(tmp_path: Path) -> None:
    results = load_model("mine/topics").predict(["good good film", "bad plot"])
    for each in results:
        assert isinstance(each, Labels) and each.scores.keys() == {"film", "good"}
        assert each.labels == [label for label, score in each.scores.items() if score > 0.5]
    good, bad = (each.scores["good"] for each in results)
    assert good > 0.5 > bad
    assert load_model("mine/topics").predict([]) == []
    (tmp_path / "a.txt").write_text("good good film\nbad plot\n")
    output = tmp_path / "out.tsv"
    assert run(["predict", "model=mine/topics", f"input={tmp_path}/a.txt", f"output={output}"]) == 0
    rows = [f"{number}\t{','.join(each.labels)}" for number, each in enumerate(results)]
    assert output.read_text().splitlines() == ["index\tprediction", *rows]


CHOICE_FORMS = {
    "c.txt": "bo\tbad film\tfilm good\nbo\n",
    "c.tsv": "begin\tone\ttwo\tthree\nbo\tbad film\tfilm good\t\nbo\tbad\t\t\n",
    "c.jsonl": '{"begin": "bo", "one": "bad film", "two": "film good", "three": null}\n'
    '{"begin": "bo", "id": "x"}\n',
}


@pytest.mark.parametrize("name", list(CHOICE_FORMS))
def test_choices_are_read_from_every_form(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CHOICE_FORMS[name])
    output = tmp_path / "out.jsonl"
    assert run(["predict", "model=mine/ends", f"input={tmp_path / name}", f"output={output}"]) == 0
    good, bad = predicted(output)
    assert (good["number"], good["text"], len(good["scores"])) == (1, "film good", 2)
    assert "error" in bad and bad["line"] == good["line"] + 1


def test_choices_are_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "model=mine/ends", "task=ends"]) == 0
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("item", [3, ("a", "b", "c"), ["a", "b"], ("a", "b")])
def test_an_item_of_another_form_is_refused(item: Any) -> None:
    with pytest.raises(UsageError, match="an item must be a text"):
        load_model("mine/mood").predict([item])


FORMS = {
    "a.txt": "good film\nbad plot\n",
    "a.tsv": "id\tsentence\n7\tgood film\n8\tbad plot\n",
    "a.csv": 'sentence,n\n"good film",1\nbad plot,2\n',
    "a.jsonl": '{"sentence": "good film"}\n{"text": "bad plot", "id": "x"}\n',
}


@pytest.mark.parametrize("name", list(FORMS))
def test_every_form_of_a_file_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FORMS[name])
    output = tmp_path / "out.jsonl"
    assert run(["predict", "model=mine/mood", f"input={tmp_path / name}", f"output={output}"]) == 0
    found = predicted(output)
    assert [each["label"] for each in found] == ["up", "down"]
    assert [each.get("id") for each in found] == [None, "x" if name == "a.jsonl" else None]


def test_pairs_words_and_questions_are_read(tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("good film\tbad plot\nno tab here\n")
    model = read_model("mine/alike")
    first, second = read_items(str(tmp_path / "pairs.txt"), model)
    assert first.item == ("good film", "bad plot") and second.fault.startswith("must be a pair")
    (tmp_path / "a.conll").write_text("anna O\n# O\n\n# newdoc\n# id = x\nbo\n")
    words = read_items(str(tmp_path / "a.conll"), read_model("mine/names"))
    assert [line.item for line in words] == [["anna", "#"], ["bo"]]
    questions = read_items("quiz.json", read_model("mine/quiz"))
    assert next(questions).id == "q0"


def test_bad_lines_are_counted_and_keep_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "good film"}\n{oops\n\xff\xfe\n{"other": 1}\n[1]\n{"text": "bad plot"}\n'
    )
    output = tmp_path / "out.jsonl"
    run(["predict", "model=mine/mood", f"input={tmp_path / 'a.jsonl'}", f"output={output}"])
    found = predicted(output)
    assert [each["line"] for each in found] == [1, 2, 3, 4, 5, 6]
    assert [each.get("error") for each in found] == [
        None,
        "not JSON at character 2 (Expecting property name enclosed in double quotes)",
        "not UTF-8",
        "has no text in sentence",
        "each line must be one JSON object",
        None,
    ]
    assert "4 lines have no answer: line 2: not JSON at character 2" in capsys.readouterr().err


HALF = "has an escape of half a character"
FAULTY = {
    "a.txt": (b"{good} film\nbad\x00\n\xff\n\n", [None, None, "not UTF-8", None]),
    "a.jsonl": (
        b'{"text": "good"}\n{"text": "\\ud83d"}\n{"text": "\\ud83d\\ude00"}\n'
        b'{"id": "\\ud83d"}\n{"text": null}\n',
        [None, HALF, None, HALF, "has no text in sentence"],
    ),
    "a.tsv": (
        b"sentence\tn\ngood\n\xff\t1\n",
        ["1 columns, expected 2; look for a missing or extra separator", "not UTF-8"],
    ),
    "a.csv": (
        b'sentence\n"good, film"\n\xff\n' + b"good " * 30_000 + b'\n"two\nlines"\n',
        [None, "not UTF-8", None, None],
    ),
}


@pytest.mark.parametrize("name", list(FAULTY))
def test_only_lines_with_a_fault_have_no_item(name: str, tmp_path: Path) -> None:
    content, faults = FAULTY[name]
    (tmp_path / name).write_bytes(content)
    lines = list(read_items(str(tmp_path / name), read_model("mine/mood")))
    assert [line.fault or None for line in lines] == faults
    assert [line.item is None for line in lines] == [fault is not None for fault in faults]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.txt", "No such file"),
        ("a.conll", "ends in .txt or .tsv or .csv or .jsonl\n"),
        ("a.tsv", "must name the columns"),
    ],
)
def test_an_input_that_cannot_be_read_leaves_nothing(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != "none.txt":
        (tmp_path / name).write_text("other\tnames\n")
    files = f"input={tmp_path / name}", f"output={tmp_path / 'made' / 'out.jsonl'}"
    assert run(["predict", "model=mine/mood", *files]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    files = f"input={tmp_path / 'a.conll'}", f"output={tmp_path / 'out.ann'}"
    assert run(["predict", "model=mine/names", *files]) == 2, "brat needs a text"


def test_neither_the_input_nor_annotations_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, notes = tmp_path / "a.jsonl", tmp_path / "n.txt"
    texts.write_text('{"text": "good"}\n')
    notes.write_text("anna\n")
    notes.with_suffix(".ann").write_text("T1\tPER 0 4\tanna\n")
    for model, source, output, says in (
        ("mood", texts, texts, "would replace the input"),
        ("mood", texts, tmp_path / "a", "answers of this model end in"),
        ("names", notes, notes.with_suffix(".ann"), "has annotations already"),
    ):
        files = f"input={source}", f"output={output}"
        assert run(["predict", f"model=mine/{model}", *files]) == 2
        assert says in capsys.readouterr().err
    assert texts.read_text() == '{"text": "good"}\n'


def test_leaderboards_and_tools_get_their_forms(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("anna in lund\nbo\n")
    (tmp_path / "mood.txt").write_text("good film\nbad plot\n")

    def output(task: str, source: str, ending: str) -> str:
        path = tmp_path / f"{task}{ending}"
        assert run(["predict", f"model=mine/{task}", f"input={source}", f"output={path}"]) == 0
        return path.read_text()

    assert (
        output("mood", str(tmp_path / "mood.txt"), ".tsv") == "index\tprediction\n0\tup\n1\tdown\n"
    )
    assert output("names", str(tmp_path / "t.txt"), ".conll").splitlines()[0] == "anna\tB-PER"
    assert output("names", str(tmp_path / "t.txt"), ".ann") == (
        "T1\tPER 0 4\tanna\nT2\tPER 13 15\tbo\n"
    )
    assert set(json.loads(output("quiz", "quiz.json", ".json"))) == {f"q{n}" for n in range(30)}
    assert run(["predict", "model=mine/mood", "input=mood.tsv", "output=x.conll"]) == 2


def test_an_interrupted_prediction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "BATCH_ITEMS", 4)
    source = tmp_path / "a.txt"
    source.write_text("".join(f"good film{' bad' * (n % 3)}\n" for n in range(30)))
    model = read_model("mine/mood")
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    predict_file(model, str(source), whole)
    decoded: list[int] = []
    decode = FinetunedModel._decode

    def stop_at_third(self: FinetunedModel, *asked: Any) -> Any:
        decoded.append(len(asked[1]))
        if len(decoded) == 3:
            raise KeyboardInterrupt
        return decode(self, *asked)

    monkeypatch.setattr(FinetunedModel, "_decode", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        predict_file(model, str(source), cut)
    assert not cut.exists()
    with cut.with_name("cut.jsonl.part").open("ab") as partial:
        partial.write(b'{"line": 9, "lab')  # killed inside a line
    tally = predict_file(model, str(source), cut)
    assert (tally.skipped, tally.items) == (8, 22)
    assert cut.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("cut.jsonl.*"))


def test_the_rest_of_another_prediction_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good\n")
    (tmp_path / "out.jsonl.part").write_text("{}\n")
    (tmp_path / "out.jsonl.part.json").write_text("{}")
    with pytest.raises(UsageError, match="belongs to another model or input; remove it"):
        predict_file(read_model("mine/mood"), str(tmp_path / "a.txt"), tmp_path / "out.jsonl")


def test_standard_input_is_answered_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = io.BytesIO(b'good film\n{"text": "bad plot"}\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    assert run(["predict", "model=mine/mood", "input=-"]) == 0
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [each["label"] for each in found] == ["up", "down"]


def test_a_model_is_scored_on_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "model=mine/mood", "experiment=bert_tiny", "task=mood"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert run(["evaluate", "model=mine/mood", "experiment=bert_tiny", "task=names"]) == 2
    assert "its kind is tag, the model's classify" in capsys.readouterr().err


def test_another_file_is_scored_without_a_training_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its examples; labels of the model that it lacks do no harm."""
    (place / "other.tsv").write_text("sentence\tlabel\ngood film\tup\ngood plot\tup\n")
    asked = ["evaluate", "model=mine/mood", "task=mood", "task.train=none.tsv"]
    assert run([*asked, "task.test=other.tsv"]) == 0
    said = capsys.readouterr().out
    assert "2 examples" in said and "100.0" in said
    assert run([*asked, "task.test=none.tsv"]) == 2
    assert "there is no file none.tsv" in capsys.readouterr().err
    (place / "other.tsv").write_text("sentence\tlabel\ngood film\tup\nbad\tsideways\n")
    assert run([*asked, "task.test=other.tsv"]) == 1
    said = capsys.readouterr().err
    assert "other.tsv:3: the label is not among the 2 of the model" in said


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    said = "".join(capsys.readouterr().out.split())
    assert "mine/mood" in said and "mine/quiz" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", "input=a.txt", "notes"], "notes: not an override"),
        (["evaluate", "task=mood", "notes"], "notes: not an override"),
        (["predict", "input=a.txt", "finetune.max_seq_length=8"], "uses the settings of the model"),
        (["evaluate", "task=mood", "finetune.max_seq_length=8"], "uses the settings of the model"),
        (["predict", "input=a.txt", "output=d.jsonl"], "output=d.jsonl: is a folder; name a file"),
        (["predict", "input=a.txt", "output=d.tsv"], "output=d.tsv.jsonl: is a folder"),
        (["predict", "input=a.txt", "output=a.txt/o.jsonl"], "is a file, not a folder"),
    ],
)
def test_a_command_that_cannot_do_what_it_says_does_nothing(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Path("store").absolute()
    monkeypatch.setenv("SESAME_STORE", str(store))
    shutil.copytree("conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("good film\n")
    for name in ("d.jsonl", "d.tsv.jsonl"):
        Path(name).mkdir()
    before = sorted(Path().rglob("*"))
    assert run([words[0], "model=mine/mood", *words[1:]]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert sorted(Path().rglob("*")) == before


def test_the_second_of_two_predictions_to_one_output_waits(place: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "many.txt", tmp_path / "out.jsonl"
    source.write_text("good film bad plot\n" * 20_000)
    command = [sys.executable, "-m", "pipeline.commands.main", "predict", "model=mine/mood",
               f"input={source}", f"output={output}"]  # fmt: skip
    both = [subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE) for _ in range(2)]
    said = [each.communicate()[1].decode() for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sum("waiting for process" in " ".join(text.split()) for text in said) == 1
    lines = predicted(output)
    assert [line["line"] for line in lines] == list(range(1, 20_001))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.txt", "out.jsonl"]


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("mine/moods", ", ".join(f"mine/{name}" for name in sorted(TASKS))),
        ("mime/mood", "did you mean mine?"),
        ("mine", f"names {len(TASKS)} models; give one of"),
        ("./encoder", "the folder has no finetuned.json"),
        ("./nowhere", "there is no such model"),
    ],
)
def test_a_wrong_reference_is_answered_with_what_there_is(reference: str, hint: str) -> None:
    with pytest.raises(UsageError, match="model=") as refused:
        load_model(reference)
    assert hint in str(refused.value)


def test_a_name_that_two_models_have_names_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second fine-tuning must not change in silence what `<run>/<task>` means."""
    settings = [*SETTINGS, "name=twice", "finetune.epochs=1", "encoder=./encoder", "task=mood"]
    (tmp_path / "a.txt").write_text("good film\n")
    files = f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'out.jsonl'}"

    def printed_model(*changed: str) -> str:
        assert run(["finetune", *settings, *changed]) == 0
        [said] = re.findall(r"sesame predict (model=\S+)", capsys.readouterr().err)
        assert run(["predict", said, *files]) == 0
        return str(said)

    assert printed_model() == "model=twice/mood"
    first = load_model("twice/mood").folder.name
    second = printed_model("finetune.lr=0.02").removeprefix("model=")
    assert second != first and load_model(second).folder.name == second
    with pytest.raises(UsageError, match="model=twice/mood: names 2 models") as refused:
        load_model("twice/mood")
    for name, rate in ((first, "0.01"), (second, "0.02")):
        told = (
            rf"{name} \(mood, encoder, seed \d+, finetune.lr={rate}, development accuracy [\d.]+\)"
        )
        assert re.search(told, str(refused.value))
    capsys.readouterr()
    assert run(["list"]) == 0
    listed = "".join(capsys.readouterr().out.split())
    assert "twice/mood(2models:" in listed and first in listed and second in listed


def test_predicting_changes_nothing_in_the_store(tmp_path: Path) -> None:
    def state() -> dict[str, int]:
        files = Path("store").rglob("*")
        return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}

    before = state()
    (tmp_path / "a.txt").write_text("good\n")
    run(["predict", "model=mine/mood", f"input={tmp_path / 'a.txt'}", f"output={tmp_path}/o.jsonl"])
    assert state() == before


def test_a_model_is_an_encoder_of_the_next_task(capsys: pytest.CaptureFixture[str]) -> None:
    settings = [*SETTINGS, "finetune.epochs=1", "name=next", "keep=false"]
    assert run(["finetune", *settings, "encoder=mine/mood", "task=alike"]) == 0
    assert "alike" in capsys.readouterr().err
    assert run(["predict", "model=next/alike", "input=mood.tsv"]) == 2


def test_every_reference_to_a_model_names_its_own_encoder() -> None:
    """As `encoder=` takes them: not the encoder that the model was made from."""
    folder = load_model("mine/mood").folder
    references = ("mine/mood", folder.name[:10], str(folder))
    own, *others = [load_encoder(each).embed(["good film"]) for each in references]
    for other in others:
        np.testing.assert_array_equal(other[0], own[0])
    assert np.abs(load_encoder("./encoder").embed(["good film"])[0] - own[0]).max() > 1e-3
    wrong = "0000" if not folder.name.startswith("0000") else "1111"
    with pytest.raises(UsageError, match=f"encoder={wrong}: no run with a pretrain, fingerprint"):
        load_encoder(wrong)


def test_the_best_of_several_seeds_is_kept_and_trained_again_if_need_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = """# @package _global_
defaults: [bert_tiny, _self_]
name: seeds
stages: [finetune]
instances:
  tuned: {stage: finetune, sweep: {finetune.seed: [1, 2, 3]}}
"""
    Path("conf/experiment").mkdir(exist_ok=True)
    Path("conf/experiment/seeds.yaml").write_text(recipe)
    words = ["run", "experiment=seeds", "encoder=./encoder", "task=mood", *SETTINGS[2:]]
    assert run([*words, "finetune.epochs=1", "--at-once=1"]) == 0
    store = Store(Path("store"))
    [made] = [
        each for each in store.outputs("model") if len(each.manifest()["counts"]["seeds"]) > 1
    ]
    counts = made.manifest()["counts"]
    best = counts["seeds"][counts["dev_scores"].index(max(counts["dev_scores"]))]
    assert counts["seed"] == best and len(counts["test_scores"]) == 3
    assert not list(Path("store/finetune").glob("*/.model")), "the models of other seeds are gone"
    weights = (made.path / "model.safetensors").read_bytes()
    subprocess.run(["rm", "-r", str(made.path)], check=True)
    capsys.readouterr()
    assert run([*words, "finetune.epochs=1", "--at-once=1"]) == 0
    assert "was not kept, so it is trained again" in capsys.readouterr().err
    assert (made.path / "model.safetensors").read_bytes() == weights
    text = (made.path / "README.md").read_text()
    assert "over 3 seeds" in text and str(Path.cwd()) not in text
    assert '"epochs": 1' in text and '"lr": 0.01' in text, "the whole recipe"
    with (made.path / "tokenizer.json").open("a") as stream:
        stream.write("\n")
    with pytest.raises(SesameError, match=r"tokenizer.json has .* bytes instead of"):
        load_model(made.fingerprint)


def test_sweeps_keep_no_model_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "finetune",
        "-m",
        "--at-once=1",
        *SETTINGS,
        "finetune.epochs=1",
        "encoder=./encoder",
        "task=mood",
    ]
    before = len(list(Store(Path("store")).outputs("model")))
    assert run([*words, "name=swept", "finetune.dropout=0.2,0.3"]) == 0
    assert len(list(Store(Path("store")).outputs("model"))) == before
    assert run([*words, "name=swept", "finetune.dropout=0.2,0.3", "keep=true"]) == 0
    assert len(list(Store(Path("store")).outputs("model"))) == before + 2


def test_a_killed_prediction_leaves_a_part_that_goes_on(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "many.txt"
    source.write_text("good film bad plot\n" * 60_000)
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "pipeline.commands.main", "predict", "model=mine/mood",
               f"input={source}", f"output={output}"]  # fmt: skip
    process = subprocess.Popen(command, cwd=place)
    partial = output.with_name("out.jsonl.part")
    while process.poll() is None and not (partial.exists() and partial.stat().st_size):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = partial.read_bytes().count(b"\n")
    assert 0 < done < 60_000
    tally = predict_file(read_model("mine/mood"), str(source), output)
    assert tally.skipped >= done - 1 and tally.skipped + tally.items == 60_000
