"""Properties of writing systems."""

import re

# Characters of scripts without spaces between words, for use inside a character class of `re`:
# Thai, Lao, Burmese, Khmer, kana, Han and its extensions.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
SPACELESS_CHARACTER = re.compile(f"[{SPACELESS}]")
# Punctuation of these scripts: CJK, and full-width forms. For a character class.
SPACELESS_MARKS = "\u3001-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# The Chinese characters that BERT's tokenizer makes single words; also for a character class.
CHINESE = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
