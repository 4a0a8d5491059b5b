"""Sesame: pretrain BERT and ELMo from raw text to scored models, on a laptop or a cluster.

    from pipeline import load_encoder

    encoder = load_encoder("demo")  # a run, name@step, a fingerprint, a folder or file of vectors
    river, money = encoder.embed(["We sat on the bank.", "The bank lends money."])
    river.shape  # (6, 3, 128): words, layers, width

Importing this is cheap; torch comes with the first encoder.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.encoders import Encoder
    from pipeline.inference.fill import Filler
    from pipeline.inference.models import FinetunedModel

__all__ = ["load_encoder", "load_filler", "load_model"]


def load_encoder(encoder: str | Path, store: str | Path | None = None) -> "Encoder":
    """The encoder that `encoder=` would name on the command line, on the best device there is.

    A run's name, `name@step`, `name@best` or a fingerprint is looked up in `store` ($SESAME_STORE,
    else ./store) and exported there if it is not yet; a path is a Hugging Face encoder's folder, an
    AllenNLP ELMo's, or word vectors. What cannot be found or read is a `SesameError`.
    """
    from pipeline.stages.encoder_inputs import open_encoder
    from pipeline.stages.prepare_encoder import prepare_reference
    from pipeline.tasks.device import choose_device

    config, inputs = prepare_reference(encoder, store)
    return open_encoder(config, inputs, config.finetune.seed).to(choose_device("auto")).eval()


def load_filler(encoder: str | Path, store: str | Path | None = None) -> "Filler":
    """The model that fills the blanks of a text, by the same references as `load_encoder`.

    A folder without a masked-LM head is a `UsageError`.
    """
    from pipeline.inference.fill import read_filler
    from pipeline.stages.prepare_encoder import prepare_reference

    _, inputs = prepare_reference(encoder, store)
    return read_filler(inputs["encoder"])


def load_model(reference: str | Path, store: str | Path | None = None) -> "FinetunedModel":
    """Load a fine-tuned model: `<run>/<task>`, the beginning of a fingerprint, or a folder.

    Runs and fingerprints are looked up in `store` ($SESAME_STORE, else ./store). The model is on
    the best device there is. Raises a `SesameError` if there is no such model, or its folder is
    damaged.
    """
    from pipeline.inference.models import read_model

    return read_model(reference, store)
