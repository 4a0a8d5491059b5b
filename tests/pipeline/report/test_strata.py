"""Tables by source and language: what they show, and that they are absent without division."""

from typing import Any

from pipeline.report.strata import document_tables, loss_tables, vocabulary_tables

DOCUMENTS: dict[str, Any] = {
    "by_source": {"notes": {"read": 10, "kept": 10, "dropped": {}}},
    "by_language": {
        "en": {"read": 4, "kept": 3, "dropped": {"repeated": 1}},
        "sv": {"read": 2000, "kept": 1500, "dropped": {"min_letters": 100, "language": 400}},
    },
}
FIT = {"words": 200, "fertility": 1.234, "unknown_rate": 0.0, "coverage": None}


def test_documents_are_shown_by_source_and_language() -> None:
    sources, languages = document_tables(DOCUMENTS, {"min_letters": "below corpus.min_letters"})
    assert (sources.columns[0].name, languages.columns[0].name) == ("source", "language")
    assert sources.rows == [["notes", "10", "10", "100.0\u202f%", ""]]
    assert [row[0] for row in languages.rows] == ["sv", "en"], "largest first"
    assert languages.rows[0][1:3] == ["2,000", "1,500"]
    assert languages.rows[0][4] == "language 400, below corpus.min_letters 100"


def test_vocabularies_are_shown_by_language() -> None:
    (languages,) = vocabulary_tables({"heldout": {"by_language": {"sv": FIT}}})
    assert languages.rows == [["sv", "200", "1.23", "0.0\u202f%", ""]]


def test_losses_are_shown_by_source_and_language() -> None:
    losses = {"by_language": {"sv": 2.3456, "en": 1.0}, "by_source": {"notes": 3.0}}
    sources, languages = loss_tables(losses, ", mine")
    assert sources.caption == "Held-out loss by source, mine"
    assert languages.rows == [["en", "1.000"], ["sv", "2.346"]]


def test_without_division_there_is_no_table() -> None:
    assert list(document_tables({"documents": {}}, {})) == []
    assert list(vocabulary_tables({"heldout": {"fertility": 1.2}})) == []
    assert list(vocabulary_tables({})) == []  # a tokenizer that was not trained here
