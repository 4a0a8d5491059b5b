"""The language of a text is identified from its script, letters and commonest words."""

import pytest

from data_prep.config import LANGUAGES
from data_prep.text.languages import KNOWN, UNDETERMINED, identify

TEXTS = {
    "en": "The children knew that the river was old, and they came to it in the evening.",
    "sv": "Barnen visste att det var en gammal flod, och de kom till den på kvällen med båten.",
    "no": "Barna ville ikke vente på båten, men gikk av sted for å se om elven ble større.",
    "de": "Die Kinder wussten, dass der Fluss alt ist, und sie kamen mit dem Boot auf das Wasser.",
    "nl": "De kinderen wisten dat het een oude rivier is en dat ze er niet met de boot op mogen.",
    "fr": "Les enfants savent que la rivière est vieille et ils ne vont pas sur le pont des Arts.",
    "es": "Los niños saben que el río es viejo y no van al puente con la barca de su padre.",
    "it": "I bambini sanno che il fiume non è giovane, ma lo amano e si siedono con la nonna.",
    "fi": "Lapset tiesivät että se oli vanha joki, mutta hän ei ollut siellä kun he tulivat.",
    "pl": "Dzieci wiedziały, że to jest stara rzeka, ale nie poszły do niej, bo już się bały.",
    "ru": "Дети знали, что это была старая река, и они пришли к ней вечером, чтобы увидеть её.",
    "uk": "Діти знали, що це стара річка, і прийшли до неї ввечері, щоб її побачити ще раз.",
    "el": "Τα παιδιά ήξεραν ότι το ποτάμι ήταν παλιό.",
    "ar": "كان الأطفال يعرفون أن النهر قديم.",
    "fa": "بچه‌ها می‌دانستند که رودخانه پیر است و گاهی چیزی می‌گفت.",
    "he": "הילדים ידעו שהנהר ישן.",
    "hi": "बच्चे जानते थे कि नदी पुरानी है।",
    "th": "เด็กๆ รู้ว่าแม่น้ำสายนี้เก่าแก่",
    "ja": "子供たちは川が古いことを知っていた。",
    "zh": "孩子们知道这条河很古老，所以他们晚上来看它。",
    "ko": "아이들은 강이 오래되었다는 것을 알고 있었다.",
}  # fmt: skip


@pytest.mark.parametrize("language", TEXTS)
def test_languages_are_told_apart(language: str) -> None:
    assert identify(TEXTS[language]) == language
    assert identify(f"{TEXTS[language]} " * 50 + TEXTS["en"]) == language


@pytest.mark.parametrize("text", ["", "42 + 17 = 59", "Kubernetes Docker Linux", "x y z"])
def test_a_text_without_evidence_is_undetermined(text: str) -> None:
    assert identify(text) == UNDETERMINED


def test_the_key_allows_the_languages_that_are_known() -> None:
    assert set(LANGUAGES) == KNOWN
