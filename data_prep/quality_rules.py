"""The published thresholds of quality filters, by rule (`corpus.filters`, `corpus.thresholds`).

A rule named `…_min_…` drops documents below its threshold, one named `…_max_…` those above it. The
name is also the reason in the counters. `data_prep.text.quality` measures.
"""

# Rae et al., 2021 (Gopher), section A.1.1: quality filtering, and table A1: repetition.
GOPHER = {
    "gopher_min_words": 50,
    "gopher_max_words": 100_000,
    "gopher_min_word_length": 3,  # mean, in characters
    "gopher_max_word_length": 10,
    "gopher_max_hashes": 0.1,  # "#" per word
    "gopher_max_ellipses": 0.1,  # per word
    "gopher_max_bullet_lines": 0.9,  # share of lines
    "gopher_max_ellipsis_lines": 0.3,
    "gopher_min_letter_words": 0.8,  # share of words with a letter
    "gopher_min_stop_words": 2,  # of eight English words; for documents in English
    "gopher_max_repeated_lines": 0.3,  # share of lines that repeat an earlier one
    "gopher_max_repeated_paragraphs": 0.3,
    "gopher_max_repeated_line_characters": 0.2,  # share of characters in such lines
    "gopher_max_repeated_paragraph_characters": 0.2,
    "gopher_max_top_2_grams": 0.2,  # share of characters in the most frequent pair of words
    "gopher_max_top_3_grams": 0.18,
    "gopher_max_top_4_grams": 0.16,
    "gopher_max_repeated_5_grams": 0.15,  # share of characters in repeated runs of five words
    "gopher_max_repeated_6_grams": 0.14,
    "gopher_max_repeated_7_grams": 0.13,
    "gopher_max_repeated_8_grams": 0.12,
    "gopher_max_repeated_9_grams": 0.11,
    "gopher_max_repeated_10_grams": 0.1,
}
# Penedo et al., 2024 (FineWeb), section 3.6.
FINEWEB = {
    "fineweb_min_punctuated_lines": 0.12,  # share of lines that end with punctuation
    "fineweb_max_repeated_line_characters": 0.1,
    "fineweb_max_short_lines": 0.67,  # share of lines with fewer than 30 characters
}
PRESETS: dict[str, dict[str, float]] = {"gopher": {**GOPHER}, "fineweb": {**FINEWEB}}
