"""The report page about a run: data, training and scores, as HTML and SVG (`page.make_page`).

May use `pages`, `workflow` and everything below them.
"""
