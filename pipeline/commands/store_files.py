"""Every file of the store and its contents, by stage, for the reference page of the store.

`tests/test_docs.py` compares these tables with the files that a run of the smoke recipe writes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreFile:
    """A file, or a pattern of files, of the store."""

    pattern: str  # below the output's folder, or below the store; `*` matches within one folder
    meaning: str
    is_in_smoke: bool = True  # True if a run of the smoke recipe writes it


EVERY_OUTPUT = (
    StoreFile(
        "manifest.json",
        "Description of the output: stage, format, result keys, fingerprints of the inputs, sizes "
        "and checksums of the user's files, counts, and size and SHA-256 of every file (above 64 "
        "MB also of sampled blocks). Written last: an output without it is not finished.",
    ),
    StoreFile(
        "run.json",
        "Times, host, machine and package versions. Never part of a fingerprint. An export has "
        "none: its facts are in run_facts/, so that its folder can be published.",
        False,
    ),
    StoreFile(
        ".request.json", "The data that the fingerprint hashes, until the output is done.", False
    ),
    StoreFile(".lease.json", "The process that works on the output now.", False),
    StoreFile(".pieces/**", "Finished work units of an unfinished output.", False),
    StoreFile(".outdated", "The inputs that `--force` made again after this output.", False),
)
_SHARDS = (
    StoreFile("train-*.tar", "Training documents, cleaned and split into sentences (WebDataset)."),
    StoreFile("heldout-*.tar", "Held-out documents in the same form."),
    StoreFile("*.tar.index.json", "Byte offsets, counts and checksums of the tar beside it."),
    StoreFile("statistics.json", "Counts by source, lengths, and dropped documents by reason."),
    StoreFile(
        ".dropped.json",
        "Dropped documents by source and reason, and a sample of their texts (`sesame inspect "
        "dropped`). No part of the output: it may be removed.",
        False,
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
        StoreFile("statistics.json", "Lengths, labels, masks, and the validator's checks."),
        StoreFile(
            "heldout-strata.json",
            "The numbers of held-out documents by source and language, if there are several.",
            False,
        ),
    ),
    "pretrain": (
        StoreFile("config.json", "The architecture and the size of the vocabulary."),
        StoreFile(
            "metrics.jsonl",
            "Losses, accuracies, learning rate and gradient norm by step. An interrupted run has "
            "the same file as an undisturbed one.",
        ),
        StoreFile("timing.jsonl", "Speed, waiting for data, memory and time left, by step."),
        StoreFile("profile/*", "Trace and table of the steps that `trainer.profile` names.", False),
        StoreFile("launches.jsonl", "Time, first step and hardware of each launch."),
        StoreFile(
            "checkpoints/*/weights-*.safetensors",
            "fp32 weights by parameter name; each rank writes some parameters.",
        ),
        StoreFile(
            "checkpoints/*/moments-*.safetensors", "The optimizer state of these parameters."
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
        StoreFile(".rank.json", "The job description that the ranks read."),
        StoreFile(".tracking/**", "Files of dashboards; `sesame sync` rebuilds them."),
    ),
    "export": (
        StoreFile("config.json", "BERT: the architecture as `transformers` reads it."),
        StoreFile("model.safetensors", "BERT: the weights under their Hugging Face names."),
        StoreFile("options.json", "ELMo: AllenNLP's options.", False),
        StoreFile("weights.hdf5", "ELMo: AllenNLP's weights.", False),
        StoreFile("README.md", "The model card. It holds numbers and settings, never text."),
        StoreFile("modules.json", "sentence-transformers: its modules.", False),
        StoreFile("1_Pooling/config.json", "sentence-transformers: width and pooling.", False),
        StoreFile("sentence_bert_config.json", "sentence-transformers: the maximum length.", False),
        StoreFile(
            "config_sentence_transformers.json", "sentence-transformers: the measure.", False
        ),
        *_TOKENIZER,
    ),
    "finetune": (
        StoreFile(".tracking/**", "Numbers per epoch, and files of dashboards."),
        StoreFile(
            "scores.json",
            "The score by the task's metric, all other scores, and the numbers of examples.",
        ),
        StoreFile(
            "predictions.jsonl",
            "Inputs, gold answer, prediction and confidence per test example; for tags and several "
            "labels also the probability of each word or label.",
        ),
        StoreFile(
            "predictions.json", "SQuAD: answers by question id, for the official script.", False
        ),
        StoreFile("null_odds.json", 'SQuAD 2.0: the margin of "no answer", by question id.', False),
        StoreFile(".model/**", "The trained model, until stage `model` takes it over.", False),
        StoreFile(
            "answers/*", "Predictions for files without labels, in a leaderboard's format.", False
        ),
        StoreFile(
            "submission.zip", "A suite (`task=glue`): the answers of all its members.", False
        ),
    ),
    "model": (
        StoreFile("finetuned.json", "The task, the head's settings, labels, scale, thresholds."),
        StoreFile("model.safetensors", "Encoder and head under their Hugging Face names.", False),
        StoreFile("config.json", "The class of `transformers` that loads it, and labels.", False),
        StoreFile("head.safetensors", "The head of a model that no such class fits.", False),
        StoreFile("encoder/**", "The encoder of a model that no such class fits.", False),
        StoreFile("README.md", "The model card: task, counts, scores over seeds.", False),
        *_TOKENIZER,
    ),
    "layers": (
        StoreFile("layers.json", "The score of every layer choice and seed.", False),
        StoreFile(".results.json", "Heads trained so far.", False),
    ),
    "report": (
        StoreFile("index.html", "The page: self-contained, no script, no network."),
        StoreFile("*.svg", "Each figure of the page."),
    ),
}
BESIDE_OUTPUTS = (
    StoreFile(
        "run_facts/export/<fingerprint>.json", "Times, host, machine and versions of an export."
    ),
    StoreFile(
        "configs/<stage>/<fingerprint>.yaml",
        "The composed config of an output, execution keys included; paths and references are "
        "masked.",
    ),
    StoreFile(
        "runs/<name>.json",
        "The outputs of a named run, which `sesame clean` keeps, and the commands that made them.",
    ),
    StoreFile(
        "<stage>/.<fingerprint>.damaged/**",
        "A damaged output that `sesame repair` set aside.",
        False,
    ),
    StoreFile(".cache/checksums.json", "Checksums of files by path, size, inode and mtime."),
    StoreFile(
        ".cache/clean/**", "Cleaned text for corpora that grow; bounded by `corpus.cache_size`."
    ),
    StoreFile(
        "sweeps/<id>/<number>/point.json", "One point of a sweep: settings, output, score.", False
    ),
    StoreFile("sweeps/<id>/sweep.json", "The points of a submitted sweep, with outputs.", False),
    StoreFile("sweeps/<id>/summary.json", "All points, the means over seeds and the best.", False),
    StoreFile("board.html", "The page of the whole store (`sesame board`).", False),
    StoreFile("sweeps/optuna.db", "Optuna's studies.", False),
    StoreFile(
        "submissions/<id>/**",
        "A submission: jobs, frozen config and code, scripts and logs.",
        False,
    ),
    StoreFile("bench/<what>.json", "The figures of `sesame bench <what>`.", False),
)
