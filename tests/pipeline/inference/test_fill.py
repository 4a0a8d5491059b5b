"""Blanks are filled as plain transformers fills them, whatever the vocabulary calls a blank."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForPreTraining, BertModel

from data_prep.config import TokenizerConfig
from data_prep.errors import UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline import load_filler
from pipeline.commands.main import run
from pipeline.inference.fill import Filler, Guess
from pipeline.models.bert.config import BertConfig as ModelShape
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.elmo.allennlp import write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo
from tests.data_prep.tokenizer_texts import KINDS, write_corpus

WORDS = ["the", "film", "was", "good", "bad", "and", "##ly", ".", "[", "]", "sep", "paris"]
TEXTS = [
    "The film was [MASK].",
    "[MASK] film [MASK] [MASK] and good.",
    "the[MASK]ly was [MASK][MASK]",
    "[MASK]",
]


def write_bert(folder: Path, mask: str = "[MASK]", heads: bool = True) -> Path:
    """A random BERT as transformers writes it, with a tokenizer of ours."""
    specials = Specials(mask=mask)
    pieces = [*specials.names(), *WORDS]
    library = from_vocabulary(pieces, lowercase=True, strip_accents=False, specials=specials)
    folder.mkdir()
    write_folder(folder, library, specials, None)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=24, initializer_range=0.3,
    )  # fmt: skip
    (BertForPreTraining if heads else BertModel)(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert") / "bert")


def by_transformers(folder: Path, text: str, top: int) -> list[list[Guess]]:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertForPreTraining.from_pretrained(folder, local_files_only=True).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        shares = model(**inputs).prediction_logits[0].softmax(1)
    best = shares[inputs["input_ids"][0] == tokenizer.mask_token_id].topk(top)
    return [
        [Guess(tokenizer.decode([id]), share) for id, share in zip(*blank, strict=True)]
        for blank in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_guesses_are_those_of_transformers(bert: Path, text: str) -> None:
    ours, theirs = load_filler(bert).fill(text, 4), by_transformers(bert, text, 4)
    assert len(ours) == text.count("[MASK]")
    assert [[g.piece for g in blank] for blank in ours] == [
        [g.piece for g in blank] for blank in theirs
    ]
    np.testing.assert_allclose(
        [[g.probability for g in blank] for blank in ours],
        [[g.probability for g in blank] for blank in theirs],
        rtol=1e-4,
    )


@pytest.mark.parametrize("kind", ["unigram", "bpe, bytes"])
def test_blanks_are_set_apart_as_transformers_does(tmp_path: Path, kind: str) -> None:
    shards, folder = tmp_path / "shards", tmp_path / "tokenizer"
    shards.mkdir()
    folder.mkdir()
    write_corpus(shards)
    build_tokenizer(shards, folder, TokenizerConfig(**KINDS[kind], workers=1))
    tokenizer = Tokenizer.load(folder)
    shape = ModelShape(layers=1, hidden=8, heads=1, intermediate=8, max_positions=64)
    filler = Filler(BertForPretraining(shape, tokenizer.size), tokenizer)
    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text in (*TEXTS, "Å, vad [MASK] det  är [MASK] ", "a [MASK], b"):
        assert filler.encode(text).tolist() == theirs(text)["input_ids"]


def test_all_guesses_together_are_certain(bert: Path) -> None:
    (guesses,) = load_filler(bert).fill(TEXTS[0], 1000)
    assert len(guesses) == len(WORDS) + 5
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)
    shares = [guess.probability for guess in guesses]
    assert shares == sorted(shares, reverse=True)


def test_a_blank_may_be_called_by_either_name(bert: Path, tmp_path: Path) -> None:
    other = load_filler(write_bert(tmp_path / "other", "<mask>"))
    assert other.fill("The <mask> was [MASK].") == other.fill("The [MASK] was <mask>.")
    assert len(load_filler(bert).fill("<mask> is [MASK]")) == 1, "there it is text"


def test_what_cannot_be_filled_is_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no blank; write \[MASK\]"):
        load_filler(bert).fill("The film was good.")
    with pytest.raises(UsageError, match="its 28 tokens are more than the encoder's 24 positions"):
        load_filler(bert).fill("[MASK]" + " good" * 25)
    with pytest.raises(UsageError, match="has no masked-LM head"):
        load_filler(write_bert(tmp_path / "headless", heads=False))
    (tmp_path / "elmo").mkdir()
    config = ElmoConfig(cell=8, projection=4, character_dim=3, filters=[[1, 4]])
    write_allennlp(tmp_path / "elmo", Elmo(config))
    with pytest.raises(UsageError, match="an ELMo guesses next words"):
        load_filler(tmp_path / "elmo")
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\n")
    with pytest.raises(UsageError, match="word vectors fill no blanks"):
        load_filler(tmp_path / "v.txt", tmp_path / "store")
    with pytest.raises(UsageError, match="encoder=random: needs an experiment"):
        load_filler("random")


def test_the_command_takes_the_text_in_any_quotes(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    for text in (
        'text="The film was [MASK]."',
        "text=The film was [MASK].",
        "The film was [MASK].",
    ):
        assert run(["fill", f"encoder={bert}", text]) == 0
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1] == printed[2]
    (guesses,) = load_filler(bert).fill("The film was [MASK].")
    assert f"{100 * guesses[0].probability:.1f} %" in printed[0]
    assert run(["fill", f"encoder=[{bert},{bert}]", "top=2", "[MASK] was [MASK]"]) == 0
    assert capfd.readouterr().out.count("blank 2") == 2
    for words, says in {
        ("top=0", "[MASK]"): "top=0: must be a number",
        (): "text: give a text with a blank",
        ("encoder=random", "[MASK]"): "encoder=random",
        ("text=a", "b"): "b: not an override",
    }.items():
        assert run(["fill", f"encoder={bert}", *words]) == 2
        assert says in capfd.readouterr().err
