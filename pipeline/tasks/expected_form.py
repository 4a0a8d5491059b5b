"""The form that a fine-tuned model will have, known from its settings before any training.

`pipeline.tasks.finetuned` decides it again from the trained model. Without torch.
"""

from pipeline.models.classes import PREFIXES, SENTENCES, class_name
from pipeline.tasks.config import FinetuneConfig, TaskConfig

OURS = "sesame"


def expected_form(
    model_type: str | None, task: TaskConfig, config: FinetuneConfig
) -> tuple[str, str]:
    """Return the class of transformers, or OURS and why no class computes the same.

    model_type: the encoder's architecture in transformers; None if it has none.
    """
    name = class_name(model_type, task.kind) if model_type in PREFIXES else None
    reason = _odd_setting(model_type, task, config)
    if model_type not in PREFIXES:
        reason = "its encoder"
    elif name is None:
        reason = f"task.kind={task.kind} with {model_type}"
    return (OURS, reason) if name is None or reason else (name, "")


def described(form: str, reason: str) -> str:
    """Return the form as a note of a plan."""
    if form == OURS:
        return f"will have our own form, as {reason} has no class in transformers"
    return f"will be a folder of transformers: {form}"


def _odd_setting(model_type: str | None, task: TaskConfig, config: FinetuneConfig) -> str:
    """Return the setting that no class has; empty if there is none. See `heads`."""
    if config.layers != "last":
        return f"finetune.layers={config.layers}"
    if config.head != "linear":
        return f"finetune.head={config.head}"
    if config.crf:
        return "finetune.crf=true"
    if task.kind not in SENTENCES:  # ModernBERT's layers before the last one need training
        is_odd = model_type == "modernbert" and config.mode == "frozen"
        return "finetune.mode=frozen" if is_odd else ""
    if task.has_pairs and config.pair_encoding == "separate":
        return "finetune.pair_encoding=separate"
    if config.pooling is not None:
        return "" if config.pooling == "pooler" else f"finetune.pooling={config.pooling}"
    return "finetune.mode=frozen" if config.mode == "frozen" else ""
