"""Stage `report`: one self-contained page about a run, or about several side by side.

Reads the outputs of every other stage, by role. Writes
    index.html  data, curves, scores beside papers', layers and how to go on; no network, no script
    *.svg       each figure of the page
Try it: sesame report, or sesame report 'runs=[demo,elmo_demo]'
"""

from typing import Any

from pipeline.config.schema import Config
from pipeline.workflow.stage import Request, Work

FORMAT = 2
SECTIONS = ("report", "share")


def inputs(config: Config) -> dict[str, Request]:
    """None of its own: the graph hands it every output of the run."""
    return {}


def run(work: Work) -> dict[str, Any]:
    """Write the page."""
    from pipeline.report.collect import collect
    from pipeline.report.page import make_page

    page = make_page(collect(work.inputs), work.config)
    page.write(work.out)
    return {
        "outputs": len(work.inputs),
        "sections": [section.anchor for section in page.sections],
        "figures": [figure.name for figure in page.figures],
    }
