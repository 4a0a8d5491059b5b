"""Every file of the store with what it holds, by stage; the reference page of the store prints it.

`tests/test_docs.py` compares these tables with what a run of the smoke recipe really leaves.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreFile:
    """A file, or a family of files, of the store."""

    pattern: str  # below the output's folder, or below the store; `*` matches within one folder
    meaning: str
    is_in_smoke: bool = True  # whether a run of the smoke recipe leaves it


EVERY_OUTPUT = (
    StoreFile(
        "manifest.json",
        "What the output is: stage, format, result keys, inputs by fingerprint, the user's files "
        "by size and checksum, counts, and every file's size and SHA-256. Written last: an output "
        "without it does not exist.",
    ),
    StoreFile(
        "run.json", "Times, host, machine and package versions. It never enters a fingerprint."
    ),
    StoreFile(
        ".request.json", "What the fingerprint hashes, while the output is being made.", False
    ),
    StoreFile(".lease.json", "Which process works on the output now.", False),
    StoreFile(".pieces/**", "Finished units of work of an unfinished output.", False),
)
_SHARDS = (
    StoreFile("train-*.tar", "Training documents, cleaned and split into sentences (WebDataset)."),
    StoreFile("heldout-*.tar", "Held-out documents in the same form."),
    StoreFile("*.tar.index.json", "Byte offsets, counts and checksums of the tar beside it."),
    StoreFile(
        "statistics.json", "Counts by source, lengths, and what was dropped for which reason."
    ),
)
_TOKENIZER = (
    StoreFile("tokenizer.json", "The tokenizer as the `tokenizers` library loads it."),
    StoreFile("tokenizer_config.json", "Settings for `AutoTokenizer`."),
    StoreFile("special_tokens_map.json", "The special tokens by role."),
    StoreFile("vocab.txt", "WordPiece: one token per line."),
    StoreFile("spiece.model", "Unigram and BPE: the SentencePiece model.", False),
    StoreFile("vocabulary.txt", "Whole words (ELMo): one word per line, by falling count.", False),
    StoreFile("counts.npy", "Whole words: the count of each in the training text.", False),
    StoreFile("sesame.json", "Kind, size and ids of the special tokens."),
)
STORE_FILES: dict[str, tuple[StoreFile, ...]] = {
    "shard": _SHARDS,
    "tokenizer": (
        *_TOKENIZER,
        StoreFile(
            "statistics.json",
            "Size, and on held-out text: tokens per word, unknown rate, coverage.",
        ),
    ),
    "vectors": (
        StoreFile("words.txt", "One word per line.", False),
        StoreFile("vectors.npy", "One vector per word, in the same order.", False),
    ),
    "examples": (
        StoreFile("train-*.tar", "Training rows in chunks of columns, each with a checksum."),
        StoreFile("heldout-*.tar", "Held-out rows in the same form."),
        StoreFile(
            "*.tar.index.json", "Byte offsets, row counts and checksums of the tar's chunks."
        ),
        StoreFile("statistics.json", "Lengths, labels and masks, and what the validator checked."),
    ),
    "pretrain": (
        StoreFile("config.json", "The architecture and the size of the vocabulary."),
        StoreFile(
            "metrics.jsonl",
            "Losses, accuracies, learning rate and gradient norm by step. An interrupted run has "
            "the same file as an undisturbed one.",
        ),
        StoreFile("timing.jsonl", "Speed, waiting for data, memory and time left, by step."),
        StoreFile(
            "launches.jsonl", "When, from which step and on which hardware each launch began."
        ),
        StoreFile("checkpoints/*/weights.safetensors", "fp32 weights by parameter name."),
        StoreFile(
            "checkpoints/*/moments-*.safetensors", "The optimizer's state, one part per rank."
        ),
        StoreFile(
            "checkpoints/*/carried-*.safetensors",
            "ELMo: the carried LSTM state of all streams.",
            False,
        ),
        StoreFile("checkpoints/*/state.json", "Step, cursor into the data, and running sums."),
        StoreFile(
            "checkpoints/*/checksums.json", "Size and SHA-256 of the checkpoint's other files."
        ),
        StoreFile(".rank.json", "The job as the ranks read it."),
        StoreFile(".tracking/**", "What dashboards wrote; `sesame sync` rebuilds it."),
    ),
    "export": (
        StoreFile("config.json", "BERT: the architecture as `transformers` reads it."),
        StoreFile("model.safetensors", "BERT: the weights under their Hugging Face names."),
        StoreFile("options.json", "ELMo: AllenNLP's options.", False),
        StoreFile("weights.hdf5", "ELMo: AllenNLP's weights.", False),
        StoreFile("README.md", "The model card. It holds numbers and settings, never text."),
        *_TOKENIZER,
    ),
    "finetune": (
        StoreFile(
            "scores.json",
            "The score by the task's metric, all other scores, and what they rest on.",
        ),
        StoreFile(
            "predictions.jsonl", "Inputs, gold answer, prediction and confidence per test example."
        ),
        StoreFile(
            "predictions.json", "SQuAD: answers by question id, for the official script.", False
        ),
        StoreFile(
            "null_odds.json", "SQuAD 2.0: how much likelier no answer is, by question id.", False
        ),
        StoreFile(
            "model.safetensors", "The best epoch's weights (`finetune.keep_model=true`).", False
        ),
        StoreFile(
            "answers/*", "Predictions of files without labels, as a leaderboard takes them.", False
        ),
        StoreFile(
            "submission.zip", "A suite (`task=glue`): the answers of all its members.", False
        ),
    ),
    "layers": (
        StoreFile("layers.json", "The score of every choice of layers and every seed.", False),
        StoreFile(".results.json", "Heads trained so far.", False),
    ),
    "report": (
        StoreFile("index.html", "The page: self-contained, no script, no network."),
        StoreFile("*.svg", "Each figure of the page."),
    ),
}
BESIDE_OUTPUTS = (
    StoreFile(
        "runs/<name>.json", "The outputs of a named run. They are what `sesame clean` keeps."
    ),
    StoreFile(".cache/checksums.json", "Checksums of your files by path, size, inode and mtime."),
    StoreFile(
        ".cache/clean/**", "Cleaned text for corpora that grow; bounded by `corpus.cache_size`."
    ),
    StoreFile(
        "sweeps/<id>/<number>/point.json", "One point of a sweep: settings, output, score.", False
    ),
    StoreFile("sweeps/<id>/summary.json", "All points, the means over seeds and the best.", False),
    StoreFile("sweeps/optuna.db", "Optuna's studies.", False),
    StoreFile(
        "submissions/<id>/**",
        "A submission: jobs, frozen config and code, scripts and logs.",
        False,
    ),
    StoreFile("bench/<what>.json", "The figures of `sesame bench <what>`.", False),
)
