"""What the tokenizer tests share: small corpora, nasty texts, and the ids to compare."""

import random
from pathlib import Path

from hypothesis import strategies as st

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.tokenizers import Tokenizer

SYMBOLS = ["<user>", "[name]", "[name]s"]
KINDS = {
    "wordpiece": {"kind": "wordpiece", "vocab_size": 400},
    "wordpiece, folded": {
        "kind": "wordpiece", "vocab_size": 310, "lowercase": True, "strip_accents": True,
        "user_symbols": SYMBOLS,
    },
    "unigram": {"kind": "unigram", "vocab_size": 350},
    "unigram, folded": {
        "kind": "unigram", "vocab_size": 310, "lowercase": True, "strip_accents": True,
        "user_symbols": SYMBOLS,
    },
    "bpe": {"kind": "bpe", "vocab_size": 400, "lowercase": True},
    "bpe, bytes": {
        "kind": "bpe", "vocab_size": 620, "byte_fallback": True, "split_digits": True,
        "user_symbols": SYMBOLS,
    },
}  # fmt: skip

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't care at all.",
    "Å, vad skönt det är på ön i åns mynning när våren kommer åter.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "我能吞下玻璃而不伤身体。天气很好。",
    "In 1984 there were 1,024 cafés and 365 naïve façades [sic].",
    "Émile's résumé was the MASK of a newcomer; the newcomers were many.",
]
NASTY = [
    "", " ", "\n", "[MASK]", "a [MASK] b", "x[SEP]y", "[CLS][PAD]", "<0x41>", "<s> </s>",
    "å å Å Å", "e\u0301\u0301", "\u0301", "a \u0301 b", "a\u200bb", "\u200b", "\ufeffword",
    "👍🏽 👨‍👩‍👧 ok", "中文 mixed中文English", "ﬁnal ﬂow", "İstanbul ıI", "ΣΑΣ ς", "naïve",
    "a\u00a0b", "\u00a0", " \u3000 x", "tab\there", "line\r\nend", "\x00nul\x01", "\x85 \x1c",
    "▁", "a▁b", "▁▁ a", "##ing ##", "don't-stop…now", "1,234.56", "x" * 101, "é" * 120,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\U0010ffff", "ا ل ع ر ب ي ة", "हिन्दी में", "ไทย", "= \u0338 ≠", "\ufffd",
    "<user>", "a <user>, b", "x[name]y", "[name][name]s <user", "the [NAME] <user>\u0301", "[name",
]  # fmt: skip
HELD_OUT = [*SENTENCES[:2], SENTENCES[3] + " 龘"]
WORDS_OF_TESTS = st.sampled_from([word for text in SENTENCES + NASTY for word in text.split()])
UTF8_CHARACTERS = st.characters(codec="utf-8")  # cleaning leaves no half of a surrogate pair
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(NASTY),
        st.text(max_size=40),
        st.lists(st.one_of(WORDS_OF_TESTS, UTF8_CHARACTERS, st.sampled_from(" \t\n .,[]▁")))
        .map("".join),
    ),
    max_size=8,
)  # fmt: skip


def many_lines(count: int = 10_000) -> list[str]:
    """Lines in Latin, Cyrillic, Han and Arabic letters, with nasty words here and there."""
    rng = random.Random(1)
    scripts = ["abcdeinorståöéß", "абвгдеёжзийклмн", "的一是不了人我在有他天气", "ابتثجحخدذرزسشص"]
    nasty = [word for text in NASTY for word in text.split()]

    def word(letters: str) -> str:
        if rng.random() < 0.05:
            return rng.choice(nasty)
        return "".join(rng.choices(letters, k=rng.randint(1, 9))) + rng.choice(
            ["", "", "", ",", "."]
        )

    return [
        " ".join(word(scripts[number % 4]) for _ in range(rng.randint(1, 12)))
        for number in range(count)
    ]


def write_shards(folder: Path, split: str, documents: list[list[str]], tars: int = 1) -> None:
    """Deal the documents to several tars."""
    for tar in range(tars):
        sections = (
            StoredSection(
                number, 0, "\n".join(sentences).encode(), Origin(str(number), "a").encode(), 0, 0
            )
            for number, sentences in enumerate(documents)
            if number % tars == tar
        )
        write_shard(folder / f"{split}-{tar:05d}.tar", sections)


def write_corpus(folder: Path) -> None:
    """Words enough for some hundred pieces, in more parts than one piece of work takes."""
    syllables = ["ka", "lo", "mi", "strå", "ßen", "qua", "ент", "ом", "The", "in", "er", "9"]
    rng = random.Random(0)
    documents = [
        [
            " ".join("".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(50)),
            *SENTENCES[number % 6 :],
        ]
        for number in range(60)
    ]
    write_shards(folder, "train", documents, tars=9)
    write_shards(folder, "heldout", [[text] for text in HELD_OUT], tars=2)


def library_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """What the tokenizers library itself makes of each text."""
    return [each.ids for each in tokenizer.library.encode_batch(texts, add_special_tokens=False)]


def our_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """What our runtime makes of each text."""
    encoded = tokenizer.encode(texts)
    assert len(encoded) == len(texts)
    return [encoded[number].tolist() for number in range(len(texts))]
