"""Show how encoders separate the senses of a word, layer by layer.

    from pathlib import Path

    from pipeline import load_encoder
    from pipeline.inference.senses import compare, notebook_chart, read_occurrences

    found = read_occurrences(Path("bank.tsv"), "bank")  # per line a sentence, a tab, its label
    senses = compare("bank", found, {"demo": load_encoder("demo")})
    senses.views[0].judgement  # accuracy of nearest neighbours, against shuffled labels
    senses.views[0].layers[-1].points  # [occurrences, 2], by t-SNE
    notebook_chart(senses)
The page of it: sesame senses word=bank 'encoder=[demo,elmo_demo]' sentences=bank.tsv
"""

from pipeline.inference.senses.compare import compare
from pipeline.inference.senses.drawing import notebook_chart
from pipeline.inference.senses.occurrences import Occurrence, corpus_occurrences, read_occurrences
from pipeline.inference.senses.separation import Judgement
from pipeline.inference.senses.views import Layer, Senses, View

__all__ = [
    "Judgement", "Layer", "Occurrence", "Senses", "View", "compare", "corpus_occurrences",
    "notebook_chart", "read_occurrences",
]  # fmt: skip
