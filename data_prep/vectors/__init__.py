"""Static word vectors: read from the files others publish, or trained on the corpus."""
