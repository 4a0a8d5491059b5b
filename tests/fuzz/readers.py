"""The readers of other people's files: how to make a valid file, damage it and read it."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece
import zstandard
from safetensors.torch import save_file

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.reading.benchmarks import BenchmarkFile
from data_prep.reading.documents import read_documents
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally
from data_prep.text.word_runs import WORD, hash_words
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.vectors.files import read_vectors
from pipeline.cluster.site import read_site
from pipeline.config.compose import compose_config
from pipeline.encoders.transformers_folder import load_transformers_encoder
from pipeline.models.bert.architectures import BERT
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.huggingface import load_for_pretraining, to_huggingface
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.elmo.allennlp import load_allennlp, write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo
from pipeline.tasks.config import READERS_BY_KIND, TaskConfig
from pipeline.tasks.examples import TaskFile
from pipeline.tasks.splits import READERS as TASK_READERS
from tests.fuzz.mutations import (
    Mutation,
    mutate_bytes,
    mutate_json,
    mutate_npy,
    mutate_safetensors,
    mutate_text,
)
from tests.pipeline.encoders.foreign_models import write_model

TEXT = "The quick brown fox jumps over the lazy dog. It was not amused, and said so."
WORDS = ["the", "fox", "café", "."]
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


@dataclass(frozen=True)
class Reader:
    """A reader: `make` writes a valid folder, of which one of the files `mutated` is damaged."""

    name: str
    make: Callable[[Path], None]
    mutated: tuple[str, ...]
    mutate: Mutation
    read: Callable[[Path], object]


def make_huggingface(folder: Path) -> None:
    config = BertConfig(layers=2, hidden=8, heads=2, intermediate=12, max_positions=16)
    weights = to_huggingface(BertForPretraining(config, 20).state_dict(), BERT, config)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(BERT.stated(config, 20, 0)))


def make_transformers(folder: Path) -> None:
    write_model(folder, "roberta")


def make_allennlp(folder: Path) -> None:
    config = ElmoConfig(layers=1, cell=4, projection=3, character_dim=2, filters=[[1, 2], [2, 3]])
    write_allennlp(folder, Elmo(config))


def make_vector_folder(folder: Path) -> None:
    np.save(folder / "matrix.npy", VECTORS)
    pq.write_table(pa.table({"word": WORDS}), folder / "words.parquet")


def make_word2vec(folder: Path) -> None:
    rows = [
        f"{word} ".encode() + row.tobytes() + b"\n"
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    (folder / "vectors.bin").write_bytes(b"4 3\n" + b"".join(rows))


def make_fasttext(folder: Path) -> None:
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    model = FastText([WORDS] * 5, vector_size=4, min_count=1, bucket=10, workers=1, seed=0)
    save_facebook_model(model, str(folder / "vectors.bin"))


def make_glove(folder: Path) -> None:
    rows = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, VECTORS, strict=True)]
    (folder / "vectors.txt").write_text("4 3\n" + "".join(rows))


def make_parquet(folder: Path) -> None:
    table = pa.table(
        {"text": [f"{TEXT} {number}" for number in range(40)], "id": list(range(40)),
         "note": pa.array([TEXT[:9], None] * 20).dictionary_encode()}
    )  # fmt: skip
    pq.write_table(table, folder / "x.parquet", row_group_size=15, compression="zstd")


def make_archives(folder: Path) -> None:
    data = b"".join(b"%s %d\n\n" % (TEXT.encode(), number) for number in range(60))
    for ending, compress in (
        ("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress),
        ("zst", zstandard.ZstdCompressor(write_checksum=True).compress),
    ):  # fmt: skip
        (folder / f"x.txt.{ending}").write_bytes(compress(data) + compress(data))


def make_tokenizer(folder: Path) -> None:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*specials, *"abc", "the", "fox", "##es"]) + "\n")


def make_tokenizer_json(folder: Path) -> None:
    (folder / "made").mkdir()
    make_tokenizer(folder)
    build_tokenizer(None, folder / "made", TokenizerConfig(source=str(folder)))
    (folder / "vocab.txt").unlink()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / "made" / name).rename(folder / name)


def make_sentencepiece(folder: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 5), model_prefix=str(folder / "own"), vocab_size=40,
        model_type="bpe", minloglevel=2, user_defined_symbols=["<user>"], byte_fallback=False,
    )  # fmt: skip


def make_conll(folder: Path) -> None:
    sentence = "The DT O\nquick JJ B-MISC\nbrown JJ I-MISC\nfox NN S-LOC\n. . O\n"
    (folder / "train.txt").write_text(f"-DOCSTART- -X- O\n\n{sentence}\n# id = 7\n{sentence}")


def make_conll2012(folder: Path) -> None:
    row = "bc/x\t0\t{}\t{}\tNN\t*\t-\t-\t-\tAnn\t{}\t-\n"
    words = row.format(0, "café", "(ORG*") + row.format(1, "fox", "*)") + row.format(2, ".", "*")
    text = f"#begin document (bc/x); part 000\n{words}\n{words}\n#end document\n"
    (folder / "x.v4_gold_conll").write_text(text)


def make_squad(folder: Path) -> None:
    answers = [{"text": "fox", "answer_start": TEXT.index("fox")}]
    questions = [{"id": "q1", "question": "Who jumps?", "answers": answers}]
    paragraphs = [{"context": TEXT, "qas": questions}]
    (folder / "train.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "Fox", "paragraphs": paragraphs}]})
    )


def make_choices(folder: Path) -> None:
    choices = [{"label": label, "text": TEXT} for label in "ABC"]
    row = {"id": "7", "answerKey": "B", "question": {"stem": TEXT, "choices": choices}}
    (folder / "train.jsonl").write_text(json.dumps(row))


def make_wic(folder: Path) -> None:
    (folder / "train.data.txt").write_text(f"fox\tN\t3-3\t{TEXT}\t{TEXT}\n" * 2)
    (folder / "train.gold.txt").write_text("T\nF\n")


def make_spans(folder: Path) -> None:
    spans = [{"start": 4, "end": 9, "label": "X"}, {"start": 10, "end": 15, "label": "Y"}]
    (folder / "train.jsonl").write_text(json.dumps({"text": TEXT, "spans": spans}))


def make_brat(folder: Path) -> None:
    (folder / "train.txt").write_text(f"{TEXT}\n\n{TEXT}\n")
    lines = ["T1\tX 4 9\tquick", "T2\tY 10 15;16 19\tbrown fox", "R1\tof Arg1:T1 Arg2:T2"]
    (folder / "train.ann").write_text("".join(f"{line}\n" for line in lines))


def make_tables(folder: Path) -> None:
    (folder / "x.tsv").write_text(f"sentence\tlabel\n{TEXT}\t1\nNo.\t0\n")
    (folder / "x.csv").write_text(f'sentence,label\n"{TEXT}",1\nNo.,0\n')
    rows = [{"sentence": TEXT, "label": 1}, {"sentence": "No.", "label": 0}]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_corpus(folder: Path) -> None:
    (folder / "x.csv").write_text(f'text,id\n"{TEXT}",1\nNo.,0\n')
    (folder / "x.jsonl").write_text(
        json.dumps({"text": TEXT, "id": 3}) + "\n" + '{"text": "No."}\n'
    )
    (folder / "x.txt").write_text(f"{TEXT}\n\n{TEXT}\n")


def make_wiki(folder: Path) -> None:
    text = (
        "{{Infobox|a=1}} '''Fox''' is an [[animal|beast]] &lt;ref&gt;A book&lt;/ref&gt; of "
        "[[File:x.png|thumb|A [[fox]]]].\n== Life ==\n{| class=x\n| cell\n|}\n* A list of things.\n"
        "&lt;!-- hidden --&gt; {{convert|5|km}} &amp;nbsp; [https://x.org link]\n== See also ==\nx"
    )
    page = (
        "  <page>\n    <title>Fox</title>\n    <ns>0</ns>\n    <id>7</id>\n    <revision>\n"
        f"      <text xml:space='preserve'>{text}</text>\n    </revision>\n  </page>\n"
    )
    site = '  <siteinfo>\n    <namespace key="6" case="x">Datei</namespace>\n  </siteinfo>\n'
    (folder / "x.xml").write_text(f"<mediawiki>\n{site}{page * 2}</mediawiki>\n")


def make_site(folder: Path) -> None:
    (folder / "site.yaml").write_text(
        "partition: gpu\ntime: 24:00:00\nmodules: [cuda/12.4]\ncontinue: chain\nsignal: 60\n"
        "stages:\n  shard: {partition: cpu, cpus: 16}\n  pretrain:\n    extra: [--exclusive]\n"
    )


def make_recipe(folder: Path) -> None:
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - bert_tiny\n  - override /tokenizer: bpe\n\n"
        "name: mine\ncorpus:\n  paths: [texts]\n  fraction: 0.5\ntrainer:\n  max_steps: 10\n"
        "tracking:\n  tags: [a, b]\nmodel:\n  layers: 2\noptim:\n  lr: 1e-4\n"
    )


def read_corpus(name: str) -> Callable[[Path], object]:
    """Read all documents of a corpus file; damage is counted, so most inputs are read."""

    def read(folder: Path) -> object:
        for path in sorted(folder.glob(name)):
            file = SourceFile(path, path.name)
            part = Part(file, 0, path.stat().st_size)
            for document in read_documents(part, CorpusConfig(), Tally()):
                document.text.encode()
        return None

    return read


def read_task(name: str, reader: str, faulty: str = "refuse") -> Callable[[Path], object]:
    read_file = TASK_READERS[reader]
    kind = next(kind for kind, names in READERS_BY_KIND.items() if reader in names)
    own: dict[str, Any] = {"text_a": "sentence", "label": "label"}
    if reader == "commonsense_qa":
        own = {"text_a": "question", "label": "answerKey", "choices": ["choices"]}
    task = TaskConfig(reader=reader, kind=kind, faulty=faulty, **own)

    def read(folder: Path) -> object:
        return [list(read_file(TaskFile(path), task)) for path in sorted(folder.glob(name))]

    return read


def read_benchmarks(name: str) -> Callable[[Path], object]:
    """Read the texts of a benchmark's files, as for `corpus.decontaminate`."""

    def read(folder: Path) -> object:
        files = [BenchmarkFile.parse(str(path)) for path in sorted(folder.glob(name))]
        return [hash_words(WORD.findall(text), {}) for file in files for text in file.texts()]

    return read


def read_tokenizer(folder: Path) -> object:
    tokenizer = Tokenizer.load(folder)
    return tokenizer.encode([TEXT]), tokenizer.decode([tokenizer.unk, tokenizer.mask])


def inside(read: Callable[[], object]) -> Callable[[Path], object]:
    """Return a reader that reads from the working directory."""

    def read_there(folder: Path) -> object:
        os.chdir(folder)
        return read()

    return read_there


READERS = {
    reader.name: reader
    for reader in (
        Reader("config.json", make_huggingface, ("config.json",), mutate_json,
               load_for_pretraining),
        Reader("safetensors", make_huggingface, ("model.safetensors",), mutate_safetensors,
               load_for_pretraining),
        Reader("transformers config.json", make_transformers,
               ("config.json", "tokenizer_config.json"), mutate_json, load_transformers_encoder),
        Reader("transformers safetensors", make_transformers, ("model.safetensors",),
               mutate_safetensors, load_transformers_encoder),
        Reader("HDF5 options", make_allennlp, ("options.json",), mutate_json, load_allennlp),
        Reader("HDF5 weights", make_allennlp, ("weights.hdf5",), mutate_bytes, load_allennlp),
        Reader("word2vec", make_word2vec, ("vectors.bin",), mutate_bytes,
               lambda folder: read_vectors(folder / "vectors.bin")),
        Reader("fastText", make_fasttext, ("vectors.bin",), mutate_bytes,
               lambda folder: read_vectors(folder / "vectors.bin")),
        Reader("GloVe", make_glove, ("vectors.txt",), mutate_text,
               lambda folder: read_vectors(folder / "vectors.txt")),
        Reader(".npy", make_vector_folder, ("matrix.npy",), mutate_npy, read_vectors),
        Reader("Parquet words", make_vector_folder, ("words.parquet",), mutate_bytes,
               read_vectors),
        Reader("Parquet corpus", make_parquet, ("x.parquet",), mutate_bytes,
               read_corpus("x.parquet")),
        Reader("archives", make_archives, tuple(f"x.txt.{e}" for e in ("gz", "bz2", "xz", "zst")),
               mutate_bytes, read_corpus("x.*")),
        Reader("corpus text", make_corpus, ("x.csv", "x.jsonl", "x.txt"), mutate_text,
               read_corpus("x.*")),
        Reader("wiki XML", make_wiki, ("x.xml",), mutate_text, read_corpus("x.xml")),
        Reader("tokenizer.json", make_tokenizer_json, ("tokenizer.json", "tokenizer_config.json"),
               mutate_json, read_tokenizer),
        Reader("vocab.txt", make_tokenizer, ("vocab.txt",), mutate_text, read_tokenizer),
        Reader(".model", make_sentencepiece, ("own.model",), mutate_bytes, read_tokenizer),
        Reader("CoNLL", make_conll, ("train.txt",), mutate_text, read_task("train.txt", "conll")),
        Reader("CoNLL-2012", make_conll2012, ("x.v4_gold_conll",), mutate_text,
               read_task("x.v4_gold_conll", "conll2012")),
        Reader("CommonsenseQA", make_choices, ("train.jsonl",), mutate_json,
               read_task("train.jsonl", "commonsense_qa")),
        Reader("WiC", make_wic, ("train.data.txt", "train.gold.txt"), mutate_text,
               read_task("*.data.txt", "wic")),
        Reader("spans", make_spans, ("train.jsonl",), mutate_json,
               read_task("train.jsonl", "spans", "drop")),
        Reader("brat", make_brat, ("train.txt", "train.ann"), mutate_text,
               read_task("train.txt", "brat", "drop")),
        Reader("SQuAD", make_squad, ("train.json",), mutate_json, read_task("train.json", "squad")),
        Reader("tables", make_tables, ("x.tsv", "x.csv", "x.jsonl"), mutate_text,
               read_task("x.*", "table")),
        Reader("benchmark tables", make_tables, ("x.tsv", "x.csv", "x.jsonl"), mutate_text,
               read_benchmarks("x.*")),
        Reader("benchmark JSON", make_squad, ("train.json",), mutate_json,
               read_benchmarks("train.json")),
        Reader("site.yaml", make_site, ("site.yaml",), mutate_text, inside(read_site)),
        Reader("recipes", make_recipe, ("conf/experiment/mine.yaml",), mutate_text,
               inside(lambda: compose_config(["experiment=mine"]))),
    )
}  # fmt: skip
