"""What happens to a document's text: cleaning, filters, sentences, words, scripts.

May use data_prep's root modules only.
"""
