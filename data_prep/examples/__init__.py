"""The `examples` stage: document shards and a tokenizer to training rows.

Entry points: `build.build` for BERT, `streams.build_streams` for ELMo.

May use `tokenizers`, `corpus`, `text` and data_prep's root modules.
"""
