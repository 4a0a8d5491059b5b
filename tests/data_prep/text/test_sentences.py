"""Sentences end where a reader would say so, and nothing is lost between them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.corpus.clean import Splitters
from data_prep.errors import UsageError
from data_prep.text.abbreviations import load_abbreviations
from data_prep.text.more_abbreviations import MORE
from data_prep.text.sentences import Splitter, split_sentences, unwrap

EVERY_LANGUAGE = Splitter("rules", load_abbreviations(["de", "en", "ru", "sv"], None))


@pytest.mark.parametrize(
    "marked",
    [
        "It rained.|Then it stopped!|Why?|Nobody knew.",
        "Dr. Smith met Mr. J. K. Jones at St. Mary's.|They talked.",
        "It costs $3.50 or 1.5 million.|Version 2.0 is out.",
        'She said "Stop!" and left.|"Why?" he asked.|"Because."',
        "“Oh.”|“Ah!”|‘So.’|And so on.",
        "(He did not know.)|She did.",
        "Well... maybe.|Wait...|What?!|No!!",
        "It ended . . .|The next began.",
        "See Fig. 3 and pp. 4-5, i.e. the charts, e.g. this one.|No.|I refuse.",
        "No. 5 is alive.|It left at 5 p.m. on Friday.",
        "He came from the U.S.|The army of the U.S. Army stayed.",
        "Acme Inc. Chairman Bob met Foo Ltd.|The rest is history.",
        "1. First point.|2. Second point.",
        "In 1999.|Then 2000.",
        "你好。|你是谁？|“我是。”|他说！|好",
        "Он ушёл.|«Да.»|Потом пришёл!",
        "Han kom.|Åke gick.|– Ja.|”Nej.”",
        "यह एक है।|दूसरा वाक्य।",
        "他说：「好。」|然后走了……没有回来。|真的吗？！|（是的。）|好。",
        "Hon köpte t.ex. Åke en bok, bl.a. En bok om 3,5 kr.|Det var bra.",
        "Kl. 8 kom Hr. Ek m.fl. till nr. 5.|Sedan gick de.|Se s. 12.|Ja.",
        "Er kam z. B. am 3. Oktober im 19. Jahrhundert.|Dann ging er.|Das war ca. Ende Mai.",
        "Vgl. Abb. 3 und Nr. 5 bzw. Dr. Meier usw.|Der Rest folgt.|Im Jahr 1999.|Danach nicht.",
        "А. С. Пушкин род. в г. Москве в 1799 г.|Он жил на ул. Арбат, д. 5 и т. д.|Потом уехал.",
        "См. рис. 3, т. е. Приложение.|«Да!» — сказал он.|Цена 3.5 руб.|Это всё.",
        "The poet J. A. Smith met I. A. Jones.|It was plan A.|I came.",
        "Mr. Ek said (see p. 5) that it was red.|Then he left for No. 10.|Dr. No came.",
        "no capital. after this. it goes on",
        "one sentence only",
    ],
)
def test_sentences_end_where_marked(marked: str) -> None:
    expected = marked.split("|")
    joiner = "" if "。" in marked else " "
    assert EVERY_LANGUAGE.sentences(joiner.join(expected)) == expected


def test_the_users_own_abbreviations(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("# comment\n\npt.\nBid\nGr #NUMERIC_ONLY#\n")
    text = "Given b.i.d. to the pt. Smith, bid. Then gr. 5 of it. Gr. Then."
    own = Splitter("rules", load_abbreviations([], str(path)))
    assert own.sentences(text) == [
        "Given b.i.d. to the pt. Smith, bid. Then gr. 5 of it.", "Gr.", "Then."
    ]  # fmt: skip
    assert len(Splitter("rules", load_abbreviations([], None)).sentences(text)) == 6
    with pytest.raises(UsageError, match=r"corpus\.abbreviations_file"):
        load_abbreviations([], str(tmp_path / "none"))


@given(st.text(alphabet="aB .!?…\"')(1。！U.S", max_size=60))
def test_nothing_is_lost_and_nothing_is_empty(text: str) -> None:
    line = " ".join(text.split())
    sentences = EVERY_LANGUAGE.sentences(line)
    assert "".join(sentences).replace(" ", "") == line.replace(" ", "")
    assert all(sentences) or line == ""


def test_paragraphs_and_modes() -> None:
    text = "One. Two.\nThree\n\nFour. Five."
    assert Splitter("rules").paragraphs(text) == [["One.", "Two.", "Three"], ["Four.", "Five."]]
    assert Splitter("lines").paragraphs(text) == [["One. Two.", "Three"], ["Four. Five."]]
    assert Splitter("none").paragraphs(text) == [["One. Two. Three"], ["Four. Five."]]


def test_wrapped_lines_are_joined_and_others_kept() -> None:
    wrapped = (
        "HISTORY\n"
        "The town was founded by settlers who came over the\n"
        "mountains in the spring of that year. They built a\n"
        "church.\n\n"
        "Milk\nEggs"
    )
    assert Splitter("rules").paragraphs(wrapped) == [
        [
            "HISTORY",
            "The town was founded by settlers who came over the mountains in the spring of "
            "that year.",
            "They built a church.",
        ],
        ["Milk", "Eggs"],
    ]
    long_lines = f"{'word ' * 40}\nNext paragraph"
    assert unwrap(long_lines) == long_lines


def test_long_wrapped_text_is_joined_in_linear_time() -> None:
    line = "word " * 15 + "end"
    assert unwrap("\n".join([line] * 40_000)) == " ".join([line] * 40_000)


def test_lines_of_scripts_without_spaces_join_without_one() -> None:
    first, second = (
        "他们在海边走了很久，看着船只慢慢地离开港口，向着远方的岛屿驶去，直到太阳落下山去的时",
        "候才回家。",
    )
    assert unwrap(f"{first}\n{second}") == first + second
    mixed = "他们在海边走了很久，看着船只慢慢地离开港口，向着远方的岛屿驶去，直到太阳落下山去的"
    assert unwrap(f"{mixed}\nLinux") == f"{mixed} Linux"
    assert Splitter("none").paragraphs("一行\n二行\nthree\nfour") == [["一行二行 three four"]]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("यह एक वाक्य है।यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("यह एक वाक्य है। यह दूसरा है॥", ["यह एक वाक्य है।", "यह दूसरा है॥"]),
        ("នេះជាប្រយោគមួយ។នេះជាប្រយោគពីរ។", ["នេះជាប្រយោគមួយ។", "នេះជាប្រយោគពីរ។"]),
        ("ပထမဝါကျ။ဒုတိယဝါကျ။", ["ပထမဝါကျ။", "ဒုတိယဝါကျ။"]),
    ],
)
def test_marks_of_other_scripts_end_a_sentence_without_a_space(
    text: str, sentences: list[str]
) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        ("ar", "ذهب الرجل إلى البيت.|هل عاد؟|نعم!|ثم نام."),
        ("bg", "Той каза: „Да.“|После си тръгна."),
        ("cs", "Narodil se 5. 10. 2020 v Praze, např. Novák.|Pak odešel."),
        ("da", "»Ja.«|Han gik, bl.a. Hansen.|Så kom hun."),
        ("de", "Er rief: „Halt!“|Sie blieb.|‚Nein.‘|Am 5. 10. 2020 kam er."),
        ("el", "Τι κάνεις;|Καλά, ευχαριστώ.|Εσύ; και αυτός;|Ναι."),
        ("en", "I love her. :)|My son does too!! ;-)|Well."),
        ("es", "¡Hola!|¿Qué tal?|El Sr. García vino (ayer).|Dijo: «Sí.»|Nada."),
        ("fr", "« Bonjour. »|Il parle à M. Dupont et Mme. Durand !|Quoi ?|Rien…|Bon."),
        ("hi", "वह आया।|क्या वह गया?|हाँ!|ठीक है॥"),
        ("hy", "Նա եկավ։|Հետո գնաց։|Վերջ։"),
        ("it", "Il dott. Rossi arrivò.|Poi partì, ecc.|Il resto tace."),
        ("ka", "ის მოვიდა.|მერე წავიდა!|რატომ?|არ ვიცი."),
        ("nl", "Dhr. Jansen kwam o.a. Piet halen.|Daarna ging hij."),
        ("pt", "O Sr. Silva chegou.|Depois saiu?|Não."),
        ("am", "እሱ መጣ።|ለምን፧|አላውቅም።"),
        ("ur", "وہ آیا۔|کیا وہ گیا؟|ہاں۔"),
    ],
)
def test_sentences_of_other_languages_end_where_marked(language: str, marked: str) -> None:
    expected = marked.split("|")
    splitter = Splitters(CorpusConfig()).of(language)
    assert splitter.sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "marked",
    [
        "你好!|我是学生?|是的。|“好。”|再见",
        "「行く。」と彼は言った。|「はい。」|彼女は笑った。|本当ですか？|うん",
        "【完了。】|次です。|終わり",
    ],
)
def test_sentences_of_scripts_without_spaces_end_where_marked(marked: str) -> None:
    assert EVERY_LANGUAGE.sentences(marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize("language", sorted(MORE))
def test_lists_of_further_languages_apply_to_these_alone(language: str) -> None:
    splitters = Splitters(CorpusConfig())
    abbreviation = min(MORE[language].inside - load_abbreviations(["en"], None).inside)
    text = f"word {abbreviation}. Next word"
    assert splitters.of(language).sentences(text) == [text]
    assert len(Splitters(CorpusConfig(abbreviations=[])).of(language).sentences(text)) == (
        1 if len(abbreviation) == 1 or "." in abbreviation else 2
    )


@given(st.text(alphabet="aBა .!?…;:)(“”„«»」と。！我1", max_size=60))
def test_nothing_is_lost_in_any_script(text: str) -> None:
    line = " ".join(text.split())
    for language in ("el", "ja", "ka"):
        sentences = Splitter("rules", language=language).sentences(line)
        assert "".join(sentences).replace(" ", "") == line.replace(" ", "")
        assert all(sentences) or line == ""
