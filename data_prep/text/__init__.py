"""Operations on a document's text: cleaning, filters, sentence and word splitting.

May use data_prep's root modules only.
"""
