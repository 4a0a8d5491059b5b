"""Explain why a corpus gave no documents, or no record has a configured field."""

from data_prep.config import DEFAULT_ID_FIELD, CorpusConfig
from data_prep.errors import SesameError
from data_prep.reading.named_fields import list_names
from data_prep.reading.tally import Tally

FILTERS = ("min_characters", "max_characters", "min_letters", "max_repetition", "fraction")
REMEDIES = {
    "where": "set corpus.where to values that occur in the records",
    "missing_text": "set corpus.text_field to a field that holds strings",
    "malformed_json": "each line of a .jsonl file must be one JSON object",
    "malformed_row": "repair the rows",
    "decontaminate": "corpus.decontaminate names benchmarks that hold this text",
    "exclude": "corpus.exclude and corpus.exclude_file name documents to leave out",
}


def refuse_wrong_keys(tally: Tally, config: CorpusConfig) -> None:
    """Raise SesameError if a configured field is in no record, or if no document is left."""
    if tally.read == 0:
        raise SesameError("corpus.paths: the files hold no documents")
    for key, setting, name in _named_fields(config):
        _refuse_absent(tally, key, setting, name)
    if tally.kept == 0:
        raise SesameError(_nothing_left(tally, config))


def _named_fields(config: CorpusConfig) -> list[tuple[str, str, str]]:
    """List the settings that name a field as (key, setting as typed, field).

    At least one record must have each of these fields.
    """
    named = {"corpus.text_field": config.text_field}
    if config.id_field != DEFAULT_ID_FIELD:
        named["corpus.id_field"] = config.id_field
    if config.group_field is not None:
        named["corpus.group_field"] = config.group_field
    return [
        *((key, f"{key}={name}", name) for key, name in named.items()),
        *(("corpus.where", f"corpus.where.{name}={v}", name) for name, v in config.where.items()),
    ]


def _refuse_absent(tally: Tally, key: str, setting: str, name: str) -> None:
    seen = tally.fields
    if seen.present[name]:
        return
    if seen.records:
        raise SesameError(
            f"{setting}: no record has the field {name}; found: {list_names(seen.names)}; set {key}"
        )
    if key == "corpus.group_field" and tally.kept:
        raise SesameError(
            f"{setting}: the files have no fields; groups are read from .jsonl, .csv, .tsv and "
            f".parquet records; give such files, or unset {key}"
        )


def _nothing_left(tally: Tally, config: CorpusConfig) -> str:
    """Return one sentence with the reasons why documents were dropped, and the remedies."""
    counted = tally.dropped.most_common()
    reasons = ", ".join(f"{_with_value(reason, config)} took {count}" for reason, count in counted)
    remedies = [REMEDIES[reason] for reason, _ in counted if reason in REMEDIES]
    if any(reason in FILTERS for reason, _ in counted):
        remedies.append("loosen the filters named here")
    remedy = "; ".join(remedies) or "give files that hold other documents"
    return f"corpus: none of {tally.read} documents is left: {reasons}; {remedy}"


def _with_value(reason: str, config: CorpusConfig) -> str:
    """Return the reason as "key=value" if it is a config key: a recipe may have set the value."""
    value = getattr(config, reason, None)
    return f"corpus.{reason}={value}" if isinstance(value, int | float | dict) else reason
