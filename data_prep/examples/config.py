"""Configuration of the stage `examples`: the YAML group examples."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from omegaconf import II

from data_prep.errors import UsageError
from data_prep.fields import execution, result


@dataclass
class ExamplesConfig:
    """Document shards and a vocabulary to training rows (stage `examples`)."""

    max_seq_length: int = result(
        128, "tokens per row, including special tokens", at_least=8, at_most=32_768
    )
    pairs: str = result(
        "nsp",
        "segment pairs: next sentence (BERT), sentence order (ALBERT) or none (RoBERTa)",
        choices=("nsp", "sop", "none"),
    )
    short_seq_prob: float = result(
        0.1, "probability that a pair gets a shorter target length", at_least=0.0, at_most=1.0
    )
    masking: str = result(
        "dynamic",
        "dynamic: the loader draws new masks in each epoch; static: masks are stored with the "
        "examples",
        choices=("static", "dynamic"),
    )
    mask_unit: str = result(
        "token", "unit that is masked as a whole in training: single tokens, whole words, or spans "
        "of words; held-out rows always have 15 % of single tokens masked",
        choices=("token", "word", "span"),
    )  # fmt: skip
    mask_rate: float = result(
        0.15, "share of tokens to predict in training", at_least=0.0, at_most=0.9
    )
    final_mask_rate: float | None = result(
        None,
        "share of tokens to predict at the end of training; the rate goes there from mask_rate in "
        "a straight line; dynamic masks only",
        at_least=0.0,
        at_most=0.9,
        is_later=True,
    )
    max_masks: int | None = result(
        None, "most predictions per example in training; no limit if not set", at_least=1
    )
    span_length: float = result(
        3.8, "mean length of a masked span in words (SpanBERT); a span has at most 10 words",
        at_least=1.0, at_most=5.5,
    )  # fmt: skip
    duplicates: int = result(
        1, "copies of the corpus, each paired differently (and masked differently if static)",
        at_least=1,
    )  # fmt: skip
    packing: bool = result(
        False, "put several examples into one row; attention does not cross examples"
    )
    packing_window: int = result(
        1024, "number of successive examples that are packed together", at_least=1
    )
    chunk_rows: int = result(
        256, "rows per chunk; a chunk is read at once and has one checksum", at_least=1
    )
    shard_size: int = result(256_000_000, "largest size of a shard file in bytes", at_least=1)
    seed: int = result(II("seed"), "seed of pairs, lengths and static masks")
    workers: int = execution(0, "processes; 0 takes one per core", at_least=0)

    def check(self) -> None:
        """Raise UsageError for keys that contradict each other."""
        if self.masking == "static" and self.final_mask_rate is not None:
            raise UsageError(
                f"examples.final_mask_rate={self.final_mask_rate}: stored masks have one rate; use "
                "examples.masking=dynamic"
            )
        if self.masking == "dynamic" and self.duplicates > 1 and self.pairs == "none":
            raise UsageError(
                f"examples.duplicates={self.duplicates}: copies would be identical with "
                "examples.masking=dynamic and examples.pairs=none; use examples.masking=static"
            )

    @property
    def masks_differ(self) -> bool:
        """True if training masks do not follow the fixed rule of held-out masks."""
        return bool(self._changed_masks())

    def stored(self) -> Self:
        """Return the settings that shape the stored rows.

        The loader draws dynamic training masks, so with masking=dynamic the mask settings are
        reset to their defaults here: all mask rates share one set of stored examples. They enter
        the fingerprint of the pretraining instead (`training_masks`).
        """
        return self if self.masking == "static" else replace(self, **MASK_DEFAULTS)

    def training_masks(self) -> dict[str, Any]:
        """Return the mask settings for the fingerprint of a pretraining with dynamic masks.

        Empty with static masks, and for the default rule, so that earlier pretrainings keep their
        fingerprints.
        """
        return self._changed_masks() if self.masking == "dynamic" else {}

    def _changed_masks(self) -> dict[str, Any]:
        keys = {key: getattr(self, key) for key in MASK_DEFAULTS}
        return {key: value for key, value in keys.items() if value != MASK_DEFAULTS[key]}


MASK_DEFAULTS: dict[str, Any] = {
    item.name: item.default
    for item in fields(ExamplesConfig)
    if item.name in ("mask_unit", "mask_rate", "final_mask_rate", "max_masks", "span_length")
}
