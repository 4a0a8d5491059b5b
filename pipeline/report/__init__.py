"""The closing page: what a run read, did and scored, as HTML and SVG; see `page.make_page`.

May use `pages`, `workflow` and everything below them.
"""
