"""Rehearses a pretraining: dozens of its real steps on its real devices, judged on one page.

`legs` runs it, `checks` judges what was measured, `page` shows it. Try: `sesame rehearse`.
"""
