"""Meaning made visible: a word's occurrences as encoders see them, layer by layer.

    from pathlib import Path

    from pipeline import load_encoder
    from pipeline.inference.senses import compare, read_occurrences

    found = read_occurrences(Path("bank.tsv"), "bank")  # a sentence, a tab, its label: a line each
    senses = compare("bank", found, {"demo": load_encoder("demo")})
    senses.views[0].judgement  # accuracy of nearest neighbours, and whether chance does as well
    senses.views[0].layers[-1].points  # [occurrences, 2], by t-SNE
    senses.chart()  # for a notebook
The page of it: sesame senses word=bank 'encoder=[demo,elmo_demo]' sentences=bank.tsv
"""

from pipeline.inference.senses.compare import Layer, Senses, View, compare
from pipeline.inference.senses.occurrences import Occurrence, corpus_occurrences, read_occurrences
from pipeline.inference.senses.separation import Judgement

__all__ = [
    "Judgement", "Layer", "Occurrence", "Senses", "View", "compare", "corpus_occurrences",
    "read_occurrences",
]  # fmt: skip
