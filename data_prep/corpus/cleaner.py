"""Clean one document after another: repair, redact, remove, filter.

A document passes these steps in this order; each may change or drop it:
    clean_document  characters, white space and line breaks (data_prep.text.cleaning)
    hook            a function of the user (data_prep.corpus.hook)
    redact          personal data becomes symbols (data_prep.text.redaction)
    decontaminate   text of benchmarks goes (data_prep.corpus.decontamination)
    filters         thresholds, corpus.fraction, corpus.languages, quality (data_prep.text.quality)
All later passes see only what is left.
"""

from collections import Counter
from dataclasses import dataclass, replace

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_files import text_digest
from data_prep.corpus.decontamination import Benchmarks
from data_prep.corpus.dropped import Dropped
from data_prep.corpus.hook import Drop, Hook
from data_prep.reading.documents import RawDocument
from data_prep.reading.source_files import SourceFile
from data_prep.reading.tally import READ, Tally
from data_prep.text.cleaning import clean_document, clean_text
from data_prep.text.filters import reason_to_drop
from data_prep.text.languages import identify
from data_prep.text.quality import QualityFilter
from data_prep.text.redaction import Redactor


@dataclass(frozen=True)
class Cleaned:
    """A document that passed all steps."""

    document: RawDocument  # with redacted id and group
    text: str
    digest: bytes  # `text_digest` of the text
    language: str | None  # None with corpus.languages=none


class Cleaner:
    """Cleans documents as the config asks, and counts in `tally` what it drops and changes.

    `dropped` is a sample of what it dropped.
    """

    def __init__(self, config: CorpusConfig, tally: Tally):
        self._config = config
        self._tally = tally
        self.dropped = Dropped()
        self._hook = None if config.hook is None else Hook(config.hook)
        self._redactor = Redactor.of(config)
        self._benchmarks = Benchmarks.of(config)
        self._quality = QualityFilter(config)

    def clean(self, document: RawDocument, file: SourceFile) -> Cleaned | None:
        """Return the cleaned document; None if a step drops it."""
        config, tally = self._config, self._tally
        if self._redactor is not None:
            document = redact_labels(document, file, self._redactor)
        text = clean_document(document.text, config, tally.repaired)
        if self._hook is not None:
            changed = self._hook.call(text, document, file)
            if isinstance(changed, Drop):
                self._drop(changed.counter, document, file, self._redact(text, Counter()))
                return None
            if changed is not None:
                text = clean_text(changed, Counter())
        text = self._redact(text, tally.redacted)
        if self._benchmarks is not None and text:
            left = self._benchmarks.remove(text, config.decontaminate_unit)
            if not left:
                self._drop("decontaminate", document, file, text)
                return None
            if left != text:
                tally.repaired["decontaminated"] += 1
            text = left
        digest = text_digest(text.encode())
        language = None if config.languages == "none" else identify(text)
        reason = (
            reason_to_drop(text, config)
            or outside_fraction(digest, config.fraction)
            or other_language(language, config.languages)
            or self._quality.reason_to_drop(text, language)
        )
        if language is not None:
            counts = tally.by_language.setdefault(language, Counter())
            counts[READ] += 1
            if reason is None:
                tally.languages[language] += 1
            else:
                counts[reason] += 1
        if reason is not None:
            self._drop(reason, document, file, text)
            return None
        return Cleaned(document, text, digest, language)

    def _redact(self, text: str, counts: Counter[str]) -> str:
        return text if self._redactor is None else self._redactor.redact(text, counts)

    def _drop(self, reason: str, document: RawDocument, file: SourceFile, text: str) -> None:
        self._tally.dropped[reason] += 1
        self.dropped.add(reason, file.name, document.id, text)


def redact_labels(document: RawDocument, file: SourceFile, redactor: Redactor) -> RawDocument:
    """Redact the id and the group that a record states; an id made of its place stays."""
    is_place = document.id.startswith(file.name)
    return replace(
        document,
        id=document.id if is_place else redactor.redact_label(document.id),
        group=document.group and redactor.redact_label(document.group),
    )


def other_language(language: str | None, wanted: str | list[str]) -> str | None:
    """Return the reason to drop a document that is not of a wanted language, or None."""
    return "language" if isinstance(wanted, list) and language not in wanted else None


def outside_fraction(digest: bytes, fraction: float) -> str | None:
    """Return the reason to drop a document that is not in this fraction of the corpus, or None.

    The choice is by hash, so a smaller fraction is a subset of every larger one.
    """
    is_kept = int.from_bytes(digest[:8], "little") < fraction * 2**64
    return None if is_kept else "fraction"
