"""Abbreviations whose full stop does not end a sentence: four languages, and the user's file.

A user's file has one abbreviation per line, without its last full stop, like the files
`nonbreaking_prefix` of Moses. `#` starts a comment; `#NUMERIC_ONLY#` after an abbreviation limits
it to the position before a number.
"""

from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path

from data_prep.errors import UsageError

NUMBERS_ONLY = "#NUMERIC_ONLY#"


@dataclass(frozen=True)
class Abbreviations:
    """Lower-case words that may be followed by a full stop inside a sentence."""

    inside: frozenset[str] = frozenset()  # never end a sentence
    before_numbers: frozenset[str] = frozenset()  # do not end a sentence if a number follows
    undecided: frozenset[str] = frozenset()  # end a sentence if one of `first_words` follows
    first_words: frozenset[str] = frozenset()  # words that often start a sentence, as written
    after_ordinals: frozenset[str] = frozenset()  # make the number before an ordinal: 3. Oktober

    def __or__(self, other: "Abbreviations") -> "Abbreviations":
        return Abbreviations(
            *(getattr(self, item.name) | getattr(other, item.name) for item in fields(self))
        )

    @property
    def every(self) -> frozenset[str]:
        """All abbreviations, whatever follows them."""
        return self.inside | self.before_numbers | self.undecided


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


ENGLISH = Abbreviations(
    words_of("""
        mr mrs ms mx messrs mme mlle dr drs prof rev fr hon sir st ste mt ft gen lt col capt cpt maj
        sgt cmdr adm gov sen rep pres supt det insp vs v cf viz e.g i.e eg ie ca approx esp al ed
        eds jan feb mar apr jun jul aug sept sep oct nov dec mon tue tues wed thu thurs fri
    """),
    words_of("no nos p pp vol vols fig figs eq eqs sec ch chap art op pt par ver ext"),
    words_of("inc ltd pvt co corp bros jr sr esq etc ave blvd rd dept univ ph.d m.d b.a"),
    words_of("""
        The A An This That These Those There Then It Its He His She Her They Their We Our You Your I
        My In On At As By For From With After Before During When While Where If Although Though
        Because Since However But And So Or Yet Not No Some Many Most Several One Two All Each Both
        Other Another Such Also According Under Until What Who Why How Here Now Today Later
        Meanwhile Despite
    """),
)
SWEDISH = Abbreviations(
    words_of("""
        t.ex t.o.m fr.o.m f.d d.v.s dvs d.ä resp s.k p.g.a pga m.a.o bl.a i.st f.n n.b jfr inkl
        exkl ca c:a hr frk dr prof kapt löjtn s:t s:ta kl tel forts övers anm ev
    """),
    words_of("nr s sid bd kap fig tab art kl st jan febr feb apr aug sept okt nov dec"),
    words_of("m.m mm m.fl mfl o.s.v osv o.d etc e.kr f.kr jr sr kr milj tkr dyl"),
    words_of("""
        Den Det De Denna Detta Dessa Där Då Här Han Hon Hans Hennes Vi Ni Jag Du Man En Ett I På Av
        Till Från Med Men Och Om När Efter Före Under Sedan Så Nu Eller För Som Vid Hos Alla Många
        Några Inte Vad Vem Varför Hur
    """),
)
GERMAN = Abbreviations(
    words_of("""
        z.b z.t z.zt d.h u.a u.ä u.u s.o s.u i.d.r i.a i.allg o.ä o.g v.a v.chr n.chr bzw ca vgl
        evtl ggf inkl exkl zzgl sog hrsg dr prof hr frl dipl phil jur st geb verh allg entspr urspr
        stv kgl jan feb febr apr aug sept okt nov dez
    """),
    words_of("nr art abb abs abschn bd kap s tab ziff anm"),
    words_of("usw etc u.s.w jh jhd mio mrd str co gmbh jr"),
    words_of("""
        Der Die Das Den Dem Des Ein Eine Einer Einem Er Sie Es Wir Ihr Ich Man Dieser Diese Dieses
        In Im An Am Auf Aus Bei Mit Nach Von Vom Zu Zum Zur Als Wenn Wie Aber Und Oder Doch Da Dann
        Hier Nun So Auch Nur Nicht Kein Keine Viele Alle Was Wer Warum
    """),
    words_of("""
        Januar Februar März April Mai Juni Juli August September Oktober November Dezember
        Jahrhundert Jahrhunderts Jahrhunderte Jahrtausend Jh Jahr Jahrestag Geburtstag Kapitel
        Klasse Weltkrieg Weltkriegs Auflage Stock Tag Mal Platz Rang
    """),
)
RUSSIAN = Abbreviations(
    words_of("""
        г-н г-жа г-на г-ну г-ном г-жи г-же гр гражд тов проф акад доц канд чл.-корр св ул пл
        просп пер наб бул кв обл р-н пос дер т.е т.к т.н т.о т.ч напр ср сокр букв янв февр апр
        авг сент окт нояб дек ред изд соч ок примеч рис
    """),
    words_of("№ с стр т тт гл ст п пп табл кн вып ч"),
    words_of("др пр т.д т.п г гг в вв н.э им руб коп тыс млн млрд кг км см мм м"),
    words_of("""
        Он Она Оно Они Его Её Ее Их Мы Вы Я Ты Это Этот Эта Эти Тот Та То Те В Во На С Со К Ко По
        Из От До За Под Над При Для О Об Но А И Или Если Когда Пока После Перед Как Так Там Тут
        Здесь Теперь Потом Уже Не Ни Все Всё Весь Вся Что Кто Где Почему
    """),
)
BUILT_IN = {"de": GERMAN, "en": ENGLISH, "ru": RUSSIAN, "sv": SWEDISH}


def load_abbreviations(languages: list[str], file: str | None) -> Abbreviations:
    """Return the union of the lists of these languages and the user's file."""
    own = [] if file is None else [read_abbreviations(Path(file).expanduser())]
    lists = [*(BUILT_IN[language] for language in languages), *own]
    return reduce(lambda one, other: one | other, lists, Abbreviations())


def read_abbreviations(path: Path) -> Abbreviations:
    """Read the abbreviations of a user's file; raises UsageError if it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"corpus.abbreviations_file={path}: cannot be read ({type(error).__name__}); "
            "give a UTF-8 file with one abbreviation per line"
        ) from error
    inside: set[str] = set()
    before_numbers: set[str] = set()
    for line in lines:
        word, _, note = line.strip().partition(" ")
        if not word or word.startswith("#"):
            continue
        chosen = before_numbers if note.strip() == NUMBERS_ONLY else inside
        chosen.add(word.removesuffix(".").lower())
    return Abbreviations(frozenset(inside), frozenset(before_numbers))
