"""The classes of transformers, by architecture and kind of task. Without torch."""

# The task's kind to the class's suffix.
SUFFIXES = {
    "classify": "ForSequenceClassification",
    "multilabel": "ForSequenceClassification",
    "regress": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
SENTENCES = ("classify", "regress", "choice", "multilabel")  # kinds with one answer per input
PREFIXES = {
    "bert": "Bert",
    "roformer": "RoFormer",
    "modernbert": "ModernBert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
}
# Classes of other architectures score choices with layers that their classifiers do not have.
SCORE_CHOICES = ("bert", "roformer", "modernbert", "distilbert")


def class_name(model_type: str, kind: str) -> str | None:
    """Return the class of an architecture for a kind of task; None if we have none such."""
    if kind == "choice" and model_type not in SCORE_CHOICES:
        return None
    return PREFIXES[model_type] + SUFFIXES[kind]
