"""Assemble the sections of the page about a run."""

from pipeline.config.schema import Config
from pipeline.pages.page import Page, render
from pipeline.pages.wording import enumerated
from pipeline.report.collect import Collected
from pipeline.report.comparison import comparison_section
from pipeline.report.confusion import confusion_tables
from pipeline.report.data import corpus_section, examples_section, tokenizer_section
from pipeline.report.inside import inside_section
from pipeline.report.kept import kept_table
from pipeline.report.layers import layers_section
from pipeline.report.learning import learning_section
from pipeline.report.running import left_out_section, next_section, run_section, subtitle
from pipeline.report.tasks import group_tables, headline, read_scores, tasks_section
from pipeline.report.training import training_section


def make_page(collected: Collected, config: Config) -> Page:
    """Return the page about the collected outputs; sections without outputs are left out.

    Results come first, then how they came about, then data and settings.
    """
    scores = read_scores(collected)
    share_text = bool(config.share.text)
    tasks = list(dict.fromkeys(score.task for score in scores))
    confusions, groups = confusion_tables(collected, share_text), group_tables(collected)
    possible = (
        tasks_section(scores, confusions, groups, kept_table(collected)),
        learning_section(scores),
        layers_section(collected),
        inside_section(scores, collected, share_text),
        training_section(collected),
        comparison_section(collected, share_text),
        left_out_section(collected),
        corpus_section(collected),
        tokenizer_section(collected),
        examples_section(collected, share_text),
        run_section(collected, share_text),
        next_section(collected, config, tasks),
    )
    sections = [section for section in possible if section]
    title = config.report.title or enumerated(collected.runs) or config.name
    return render("report", title, subtitle(collected), headline(scores), sections)
