"""Properties of writing systems."""

# Characters of scripts without spaces between words, for use inside a character class of `re`:
# Thai, Lao, Burmese, Khmer, kana, Han and its extensions.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
