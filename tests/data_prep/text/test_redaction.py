"""Personal data becomes typed symbols, in linear time; ordinary numbers and words stay."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.text import redaction
from data_prep.text.redaction import Redactor

EVERY = ["email", "phone", "id", "ip"]


def redact(text: str, **keys: object) -> tuple[str, dict[str, int]]:
    redactor = Redactor.of(CorpusConfig(**(keys or {"redact": EVERY})))  # type: ignore[arg-type]
    assert redactor is not None
    counts: Counter[str] = Counter()
    return redactor.redact(text, counts), dict(+counts)


def test_nothing_is_redacted_unless_asked_for() -> None:
    assert Redactor.of(CorpusConfig()) is None
    assert redact("bob@example.org, 555-123-4567", redact=["phone"]) == (
        "bob@example.org, [PHONE]",
        {"PHONE": 1},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to anna.o'brien+x@mail.example.co.uk.", "Write to [EMAIL]."),
        ("<åsa_ö@exempel.se>,bo@b.org", "<[EMAIL]>,[EMAIL]"),
        ("请联系wang@example.cn谢谢", "请联系[EMAIL]谢谢"),
        ("Call +46 (0)70-123 45 67 or 0046701234567.", "Call [PHONE] or [PHONE]."),
        ("070-123 45 67, 08-12 34 56 78, (030) 1234567", "[PHONE], [PHONE], [PHONE]"),
        ("(555) 123-4567 and 1-555-123-4567", "[PHONE] and [PHONE]"),
        ("born 19121212-1212, CPR 121212-1234", "born [ID], CPR [ID]"),
        ("SSN 078-05-1120; HETU 131052-308T; QQ 12 34 56 C", "SSN [ID]; HETU [ID]; [ID]"),
        ("card 4111 1111 1111 1111, IBAN GB82 WEST 1234 5698 7654 32", "card [ID], IBAN [ID]"),
        ("passport X1234567, record 123456789", "passport [ID], record [ID]"),
        ("from 192.168.0.1 to 2001:db8::8a2e:370:7334 and ::1", "from [IP] to [IP] and [IP]"),
    ],
)
def test_each_kind_is_found_in_its_written_forms(text: str, expected: str) -> None:
    assert redact(text)[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "In 1984 there were 1,024 cafés, 0.12345678 of them open from 12:30:45 to 14.30.",
        "On 2020-01-31, 01.02.2020 and 3/4/1999 it cost 1 000 000 kr, or 12,345,678.90.",
        "A ratio of 3.14159265 and version 1.2.3, std::vector, a::b, @home, me@localhost.",
        "Sent: 10/08/2000 11:52 AM, or 2000/08/10 11:52; 05/2001.",
        "The scores were 10-8, 21-19 and 1984–1985; page 12345678.",
    ],
)
def test_ordinary_numbers_stay(text: str) -> None:
    assert redact(text) == (text, {})


def test_names_are_found_as_listed_in_capitals_and_in_the_genitive(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("Anna-Lena Åberg\nMark\nO'Brien\n王小明\nId\nAnna-Lena\n\n")
    text, counts = redact(
        "Anna-Lena\nÅbergs note: mark it. MARK, O’Brien's and ANNA-LENA ÅBERG; Marks. 我叫王小明。",
        redact_names_file=str(file),
    )
    assert text == "[NAME] note: mark it. [NAME], [NAME]'s and [NAME]; [NAME]. 我叫[NAME]。"
    assert counts == {"NAME": 6}
    both = {"redact_names_file": str(file), "redact": ["id"]}
    assert redact("Id 123456789", **both)[0] == "[NAME] [ID]"


def test_own_patterns_come_first_and_are_counted() -> None:
    keys = {"redact": EVERY, "redact_patterns": {"CASE": r"\bK-[0-9]{4,}\b"}}
    text, counts = redact("Case K-1234567890, mail k@example.org", **keys)
    assert text == "Case [CASE], mail [EMAIL]" and counts == {"CASE": 1, "EMAIL": 1}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"CASE": "K-("}, r"corpus\.redact_patterns\.CASE=K-\(: .*missing \)"),
        ({"CASE": r"(?<=K)\d"}, r"corpus\.redact_patterns\.CASE=.*look-around"),
        ({"CASE": "x*"}, r"corpus\.redact_patterns\.CASE=x\*: it matches empty text"),
        ({"case 1": "x"}, r"corpus\.redact_patterns\.case 1: a symbol is named by capital"),
        ({"MASK": "x"}, r"corpus\.redact_patterns\.MASK: a symbol"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_key(patterns: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CorpusConfig(redact_patterns=patterns).check()


@given(st.text(st.sampled_from("a1@.:-+( )0Aé[\n中f"), max_size=60))
def test_redaction_is_stable(text: str) -> None:
    """A second pass finds nothing: no rule reads another rule's symbols."""
    once, _ = redact(text)
    assert redact(once) == (once, {})


@pytest.mark.parametrize(
    "unit",
    ["a", "1", "1 ", "a.", "a@", "a@b", "1.", "0-", "::", "1:", "A1", "+1 ", "0) (", "'"],
)
def test_cost_is_linear_in_adversarial_text(unit: str) -> None:
    """A quadratic pattern would take hours for these texts, so this test would not end."""
    redact(unit * 200_000)


def test_an_id_or_group_with_personal_data_becomes_a_pseudonym() -> None:
    redactor = Redactor.of(CorpusConfig(redact=EVERY))
    assert redactor is not None
    assert redactor.redact_label("doc-17") == "doc-17"
    one, two = map(redactor.redact_label, ("anna@example.org", "bo@example.org"))
    assert one.startswith("[EMAIL]") and one != two and "anna" not in one
    assert redactor.redact_label("anna@example.org") == one


def test_an_unreadable_list_of_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe")
    config = CorpusConfig(redact_names_file=str(tmp_path / "names.txt"))
    with pytest.raises(UsageError, match=r"corpus\.redact_names_file=.*UTF-8"):
        Redactor.of(config)
    with pytest.raises(UsageError, match=r"corpus\.redact_names_file=.*no such file"):
        CorpusConfig(redact_names_file=str(tmp_path / "absent")).check()


def test_a_long_list_costs_one_look_up_per_word(monkeypatch: pytest.MonkeyPatch) -> None:
    names = redaction.Names([f"Anna Name{number}" for number in range(20_000)])
    checked = 0
    original = redaction.Names._is_name

    def count(self: redaction.Names, *arguments: object) -> bool:
        nonlocal checked
        checked += 1
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(redaction.Names, "_is_name", count)
    assert len(list(names.spans("Anna met Anna Name77. " * 100))) == 100
    assert checked == 200
