"""Names of files and folders in the folders of encoders and models; imports no torch."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "spiece.model",
    "sesame.json",
)
MEMBERS = "members"  # subfolder of several encoders side by side
OF_MODEL = "encoder"  # subfolder of a fine-tuned model in Sesame's own form
