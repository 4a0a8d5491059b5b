"""Export an ELMo checkpoint in AllenNLP's format, with vocabulary, tokenizer and model card.

Writes options.json, weights.hdf5 and vocabulary.txt, as bilm-tf and AllenNLP read them. Also writes
softmax.safetensors, which AllenNLP's format lacks and only continued training needs. Every export
is verified: the files are read back and must give the same vectors.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from data_prep.errors import SesameError
from data_prep.files import atomic_write, write_atomically
from data_prep.tokenizers.characters import character_ids, symbol_counts
from data_prep.tokenizers.vocabulary import COUNTS, VOCABULARY
from pipeline.encoders.tokenizer_files import copy_files
from pipeline.export.card import Facts, front_matter, record
from pipeline.export.huggingface import PROBES
from pipeline.models.elmo.allennlp import load_allennlp, write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.family import SOFTMAX
from pipeline.models.elmo.network import DIRECTIONS, Elmo, ElmoForPretraining
from pipeline.models.untrusted import State
from pipeline.store.encoder_files import TOKENIZER_FILES

TOLERANCE = 1e-6
ABOUT = """\
# ELMo, {layers} layers of {cell} projected to {projection}

Word vectors from characters and their context (Peters et al. 2018): {states} layers, {width} wide,
both directions side by side. It reads any word; {vocab_size:,} words were predicted in pretraining
by Sesame.

## Use

`sesame embed encoder=path/to/this/folder input=sentences.txt`, or in AllenNLP

```python
from allennlp.modules.elmo import Elmo

elmo = Elmo("options.json", "weights.hdf5", num_output_representations=1)
```

It is meant as features for tagging and classification in the language and domain of its corpus.
"""


def export_allennlp(
    weights: State, config: ElmoConfig, vocab_size: int, tokenizer: Path, out: Path, facts: Facts
) -> dict[str, Any]:
    """Write the folder `out`, verify it, and return counts; raise a SesameError if it is wrong."""
    model = ElmoForPretraining(config, vocab_size)
    model.load_state_dict(weights)
    write_allennlp(out, model.elmo)
    with atomic_write(out / SOFTMAX) as stream:
        stream.write(save(model.softmax.state_dict()))
    copy_files(tokenizer, out, (*TOKENIZER_FILES, VOCABULARY, COUNTS))
    about = ABOUT.format(
        layers=config.layers,
        cell=config.cell,
        projection=config.projection,
        states=config.layers + 1,
        width=DIRECTIONS * config.projection,
        vocab_size=vocab_size,
    )
    card = front_matter({}, "elmo", facts) + about + record(facts, "words")
    write_atomically(out / "README.md", card)
    _prove(model.elmo, out)
    return {
        "step": facts.step,
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
    }


@torch.no_grad()
def _prove(elmo: Elmo, out: Path) -> None:
    """Compare our vectors with those of the written files, in double precision."""
    words = [word for probe in PROBES for word in probe.split()]
    characters = character_ids(words, elmo.config.max_characters).astype(np.int64)
    order_T1 = torch.arange(len(words))[:, None]
    index_2T1 = torch.stack([order_T1, order_T1.flip(0)])

    def vectors(model: Elmo) -> torch.Tensor:
        inputs = (torch.from_numpy(characters), symbol_counts(characters), index_2T1)
        x_UP, outputs, _ = model.double().eval()(*inputs)
        return torch.stack([x_UP, *(x_T1P[:, 0] for layers in outputs for x_T1P in layers)])

    difference = float((vectors(elmo) - vectors(load_allennlp(out))).abs().max())
    if not difference <= TOLERANCE:  # written so that NaN fails
        raise SesameError(
            f"{out}: vectors of the written files differ from ours by {difference:.2g}, more than "
            f"{TOLERANCE:g}: the export is not valid"
        )
