"""Find the untrained twin of an encoder: the same model and tokenizer with random weights.

Reads the manifests of a store: of fine-tunings, and of the outputs that their encoders were made
from. Encoders of one origin differ in their training only.
"""

from collections.abc import Mapping
from typing import Any

from data_prep.errors import SesameError
from data_prep.fields import result_keys
from pipeline.models.registry import family_of, model_config
from pipeline.store.outputs import Store, canonical


def origin(manifest: Mapping[str, Any], store: Store) -> str:
    """Return model and tokenizer of a fine-tuning's encoder; empty if they cannot be known.

    They are not known of folders, vectors, baselines and several encoders side by side. A suite has
    the origin of its members.
    """
    upstream = manifest["upstream"]
    try:
        if upstream.keys() == {"tokenizer"}:  # random weights
            return _identity(manifest["config"]["model"], upstream["tokenizer"])
        if upstream.keys() == {"encoder"}:
            return _of_output(upstream["encoder"], store)
        is_suite = all(reference.startswith("finetune/") for reference in upstream.values())
        members = {_of_output(each, store) for each in upstream.values()} if is_suite else set()
    except (SesameError, KeyError, TypeError, OSError):
        # The outputs are gone, or of another version.
        return ""
    return members.pop() if len(members) == 1 else ""


def _of_output(reference: str, store: Store) -> str:
    stage = reference.partition("/")[0]
    if stage not in ("finetune", "model", "export", "pretrain"):
        return ""
    made = store.from_reference(reference).request()
    if stage == "finetune":
        return origin(made, store)
    if stage == "pretrain":
        return _identity(made["config"]["model"], made["upstream"]["tokenizer"])
    return _of_output(made["upstream"]["encoder" if stage == "model" else "pretrain"], store)


def _identity(settings: dict[str, Any], tokenizer: str) -> str:
    """Return model and tokenizer as text, without the options that only pretraining reads."""
    model = model_config(settings)
    unread = family_of(model).objective_keys
    read = {key: value for key, value in result_keys(model).items() if key not in unread}
    return canonical({"model": read, "tokenizer": tokenizer})
