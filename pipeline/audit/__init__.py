"""What a run could give away about its text, for whoever must sign for it (`sesame audit`).

    rarity      vocabulary entries that occur in few groups or documents
    canaries    planted strings, searched in every file of the run
    memory      how much better the model restores training text than held-out text
    page        the page that `sesame audit` writes
All state counts; none of them shows text.
"""
