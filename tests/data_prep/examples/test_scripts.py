"""Masks in every script, with every tokenizer and unit: one rate, whole words, none without."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from data_prep.config import TokenizerConfig
from data_prep.examples.build import build
from data_prep.examples.masking import MaskRule, Vocabulary, choose_masks
from data_prep.examples.streams import build_streams
from data_prep.random import keys
from data_prep.text.segmentation import separate_words
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.huggingface import Specials, finished
from data_prep.tokenizers.word_marks import FLIP, compact, split_compact
from data_prep.tokenizers.words import split_like_elmo
from tests.data_prep.small_examples import config, read_all
from tests.data_prep.tokenizer_texts import write_shards

WORDS = {
    "latin": "the captain saw old ships sailing over wide seas towards many islands and harbours",
    "cyrillic": "старый капитан видел корабли которые плыли через широкое море мимо островов",
    "chinese": "我们 今天 北京 大学 天气 学生 老师 喜欢 吃饭 电脑 朋友 工作 中国 世界 经济 时间",
    "japanese": "私 は 東京 大学 で 日本語 を 勉強 する 今日 天気 学生 先生 友達 仕事 世界 カメラ",
    "thai": "วัน อากาศ ดี มาก ฉัน ไป ตลาด โรงเรียน ครู กิน ข้าว ทำงาน ประเทศ ภาษา หนังสือ เวลา",
    "lao": "ມື້ ອາກາດ ດີ ຫຼາຍ ຂ້ອຍ ໄປ ຕະຫຼາດ ໂຮງຮຽນ ກິນ ເຂົ້າ ປະເທດ ພາສາ ປຶ້ມ ເວລາ ເຮືອນ ນ້ຳ",
    "khmer": "ថ្ងៃ អាកាសធាតុ ល្អ ណាស់ ខ្ញុំ ទៅ ផ្សារ សាលា សិស្ស គ្រូ បាយ ប្រទេស ភាសា សៀវភៅ ពេល ផ្ទះ",
    "burmese": "ရာသီဥတု ကောင်း တယ် ဈေး ကျောင်း ဆရာ ထမင်း စား အလုပ် နိုင်ငံ ဘာသာ စာအုပ် အချိန် ရေ",
}
SPACED = ("latin", "cyrillic")
SCRIPTS = pytest.mark.parametrize("script", WORDS)
KINDS = pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece"])


def clauses(script: str, count: int) -> list[str]:
    """Sentences of words, without spaces where the script has none."""
    rng = np.random.default_rng(1)
    words = WORDS[script].split()
    space = " " if script in SPACED else ""
    return [space.join(rng.choice(words, rng.integers(8, 30))) for _ in range(count)]


def train(script: str, kind: str, folder: Path, texts: list[str]) -> Tokenizer:
    """A tokenizer with some tokens of several characters, in a folder that has its shards too."""
    write_shards(folder, "train", [texts[:200], texts[200:]])
    write_shards(folder, "heldout", [texts[:3]])
    letters = len(set(WORDS[script]) - {" "})
    more = {"unigram": 15, "bpe": 15, "wordpiece": letters + 10}[kind]
    if (script, kind) == ("chinese", "wordpiece"):
        more = 0  # every character is a word
    if (script, kind) == ("japanese", "wordpiece"):
        more = 10  # Chinese characters are words
    build_tokenizer(folder, folder, TokenizerConfig(kind, 5 + letters + more, workers=1))
    return Tokenizer.load(folder)


@KINDS
@SCRIPTS
def test_every_script_has_the_same_share_of_masks_in_whole_words(
    script: str, kind: str, tmp_path: Path
) -> None:
    texts = clauses(script, 400)
    tokenizer = train(script, kind, tmp_path, texts)
    encoded = tokenizer.encode_marked(texts)
    tokens, flips = split_compact(compact(encoded.ids, tokenizer.size), "<u2")
    assert (flips is None) == (script in SPACED)
    np.testing.assert_array_equal(tokens, tokenizer.encode(texts).ids)
    starts = tokenizer.starts_mask_word[tokens]
    starts = starts if flips is None else starts != flips
    offsets = encoded.offsets.astype(np.int32)
    if script not in SPACED:
        expected = [start for text in texts for start in starts_by_segmenter(tokenizer, text)]
        assert starts.tolist() == expected
    counts = {}
    for unit in ("token", "word", "span"):
        rule, vocabulary = MaskRule(unit=unit), Vocabulary.of(tokenizer)
        names = keys(3, np.arange(len(texts)))
        masks = choose_masks(tokens, offsets, names, vocabulary, rule, flips)
        counts[unit] = np.diff(masks.target_examples)
        maskable = np.add.reduceat(~vocabulary.special[tokens], offsets[:-1])
        assert (counts[unit][maskable > 0] > 0).all()
        # A word that does not fit the rest is left out, and a shorter one is taken.
        missing = rule.predictions(maskable) - counts[unit]
        sizes = np.diff(np.flatnonzero(np.append(starts, True)))
        assert missing.sum() == 0 if unit == "token" else missing.max() < sizes.max()
    spread = counts["token"].std() / np.sqrt(len(texts))
    for unit in ("word", "span"):
        assert abs(counts[unit].mean() - counts["token"].mean()) < 6 * spread


def starts_by_segmenter(tokenizer: Tokenizer, text: str) -> list[bool]:
    """True for each token that starts a word: a plain reference."""
    places = tokenizer.library.encode(text, add_special_tokens=False).offsets
    words = np.cumsum([0, *map(len, separate_words(text).split())]).tolist()
    starts = [start in words and start >= before for (_, before), (start, _) in pairwise(places)]
    return [True, *starts]


@pytest.mark.parametrize("masking", ["static", "dynamic"])
@pytest.mark.parametrize("script", ["chinese", "thai", "latin"])
def test_stored_rows_know_the_words(script: str, masking: str, tmp_path: Path) -> None:
    texts = clauses(script, 400)
    tokenizer = train(script, "wordpiece", tmp_path, texts)
    out = tmp_path / "examples"
    out.mkdir()
    build(tmp_path, tmp_path, out, config(mask_unit="word", masking=masking, max_seq_length=64))
    assert all(chunk.word_flips is None for chunk in read_all(out, "heldout"))
    if script in SPACED:
        assert all(chunk.word_flips is None for chunk in read_all(out))
        return
    whole = tokenizer.encode_marked(texts).ids.tobytes()
    for chunk in read_all(out):
        assert chunk.word_flips is not None
        marked = chunk.tokens.astype(np.int32) + FLIP * chunk.word_flips.astype(np.int32)
        for example, (first, last) in enumerate(pairwise(chunk.example_tokens.tolist())):
            middle = first + int(chunk.second[example])
            for begin, end in ((first + 1, middle - 1), (middle, last - 1)):
                assert marked[begin:end].tobytes() in whole


def test_rows_for_single_tokens_hold_no_words(tmp_path: Path) -> None:
    train("thai", "wordpiece", tmp_path, clauses("thai", 400))
    out = tmp_path / "examples"
    out.mkdir()
    build(tmp_path, tmp_path, out, config(max_seq_length=64))
    assert all(chunk.word_flips is None for chunk in read_all(out))


@pytest.mark.parametrize("script", [each for each in WORDS if each not in SPACED])
def test_elmo_reads_the_words_of_the_segmenter(script: str, tmp_path: Path) -> None:
    texts = clauses(script, 400)
    write_shards(tmp_path, "train", [texts[:200], texts[200:]])
    write_shards(tmp_path, "heldout", [texts[:3]])
    build_tokenizer(tmp_path, tmp_path, TokenizerConfig("words", 10, workers=1))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.unk not in tokenizer.encode(texts).ids
    for text in texts[:20]:
        words = separate_words(text).split()
        ids = tokenizer.encode([text])[0].tolist()
        assert [tokenizer.piece(id) for id in ids] == words
        assert split_like_elmo(text, tokenizer.library) == words
    out = tmp_path / "examples"
    out.mkdir()
    rows = build_streams(tmp_path, tmp_path, out, config(pairs="none", max_seq_length=512))
    assert rows["train"]["words"] == sum(len(separate_words(text).split()) for text in texts)


def test_tokens_of_single_bytes_stay_in_their_word(tmp_path: Path) -> None:
    write_shards(tmp_path, "train", [["我们今天去北京大学 ok"] * 30, ["the ship"] * 30])
    write_shards(tmp_path, "heldout", [["我们"]])
    build_tokenizer(tmp_path, tmp_path, TokenizerConfig("bpe", 300, byte_fallback=True, workers=1))
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode_marked(["老师喜欢"]).ids  # no character of the vocabulary
    starts = tokenizer.starts_mask_word[ids & ~FLIP] != (ids >= FLIP)
    assert tokenizer.piece(int(ids[0])) == "▁"
    assert np.flatnonzero(starts).tolist() == [0, 7]  # 老师 are six bytes, 喜欢 six


def test_tokenizers_that_read_the_whole_text_know_the_words_too() -> None:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    library.train_from_iterator(["我们 the ship"] * 20, trainer)
    tokenizer = Tokenizer(finished(library, Specials()), Specials())
    assert tokenizer.reach == "text"
    text = "the 老师喜欢我们 ship"
    ids = tokenizer.encode_marked([text]).ids
    starts = tokenizer.starts_mask_word[ids & ~FLIP] != (ids >= FLIP)
    places = library.encode(text, add_special_tokens=False).offsets
    words = {place for place, start in zip(places, starts, strict=True) if start}
    assert {text[start:].lstrip()[:2] for start, _ in words} == {"老师", "喜欢", "我们", "sh"}
