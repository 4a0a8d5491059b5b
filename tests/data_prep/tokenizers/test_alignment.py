"""Words and pieces of a text are matched by their characters."""

import numpy as np

from data_prep.tokenizers.alignment import Alignment, align, concatenate

UNKNOWN = 9


def aligned(pieces: list[tuple[int, int]], words: list[tuple[int, int]]) -> Alignment:
    ids = np.arange(len(pieces), dtype=np.int32)
    characters = np.array(pieces, np.int64).reshape(-1, 2)
    return align(ids, characters, np.array(words, np.int64), UNKNOWN)


def test_words_may_share_a_piece() -> None:
    # "(the) x" with the pieces "(t", "he", ")", " " and "x"
    found = aligned([(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)], [(0, 1), (1, 4), (4, 5), (6, 7)])
    assert found.bounds.tolist() == [0, 1, 2, 3, 5]
    assert found.firsts.tolist() == [0, 0, 2, 3], "the mark of a space begins the word after it"
    assert found.stands_apart.tolist() == [True, False, True, True]
    part = found.between(1, 3)
    assert part.ids.tolist() == [0, 1, 2], "the piece that the word shares is there too"
    assert (part.bounds.tolist(), part.firsts.tolist()) == ([0, 2, 3], [0, 2])
    assert part.stands_apart.tolist() == [True, True]


def test_one_piece_may_be_of_several_words_and_a_word_of_none() -> None:
    found = aligned([(0, 3), (5, 6)], [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)])
    assert found.bounds.tolist() == [0, 1, 1, 1, 1, 2]
    assert found.firsts.tolist() == [0, 0, 0, 0, 1]
    assert found.stands_apart.tolist() == [True, False, False, False, True]
    late = aligned([(2, 3)], [(0, 1), (2, 3)])
    assert late.firsts.tolist() == [0, 0], "before the first piece there is only the first one"
    assert late.stands_apart.tolist() == [True, False]


def test_a_text_without_pieces_has_an_unknown_one() -> None:
    found = aligned([], [(0, 1), (2, 3)])
    assert found.ids.tolist() == [UNKNOWN]
    assert (found.bounds.tolist(), found.firsts.tolist()) == ([0, 1, 1], [0, 0])


def test_parts_follow_each_other() -> None:
    one = aligned([(0, 1), (1, 2)], [(0, 2)])
    other = aligned([(0, 1), (2, 3)], [(0, 1), (2, 3)])
    both = concatenate([one, other])
    assert both.bounds.tolist() == [0, 2, 3, 4]
    assert both.firsts.tolist() == [0, 2, 3]
    assert len(both.ids) == 4 and both.stands_apart.all()
    assert concatenate([]).bounds.tolist() == [0]
