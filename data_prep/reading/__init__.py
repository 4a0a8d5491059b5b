"""Raw files to documents: sources, lines, compression, Parquet, MediaWiki dumps.

May use `text` and data_prep's root modules.
"""
