"""Stage `report`: one self-contained page about a run, or about several side by side.

Reads the outputs of every other stage, by role. Writes
    index.html  data, curves, scores beside papers', layers and how to go on; no network, no script
    *.svg       each figure of the page
Try it: sesame report, or sesame report 'runs=[demo,elmo_demo]'
"""

from dataclasses import replace
from typing import Any

from pipeline.config.schema import Config
from pipeline.workflow.stage import (
    Input,
    Instance,
    Node,
    Planner,
    Request,
    Stage,
    Work,
    as_input,
)


class Report(Stage):
    """One page about outputs of a run, or of several."""

    name = "report"
    format = 2
    sections = ("report", "share")

    def inputs(self, config: Config) -> dict[str, Request]:
        """None of its own: the graph hands it every output of the run."""
        return {}

    def run(self, work: Work) -> dict[str, Any]:
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

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """The page about everything that is in the graph so far."""
        add_report(graph, instance.config, reported(graph))


def add_report(graph: Planner, config: Config, about: dict[str, Input]) -> Node:
    """Add the page about the given outputs, named by role.

    It shows text only if that is allowed for every instance of the graph: one may read its own
    task.
    """
    shared = bool(config.share.text) and all(n.config.share.text for n in graph.nodes.values())
    own = replace(config, share=replace(config.share, text=shared))
    return graph.place(Report.name, own, "", about)


def reported(graph: Planner) -> dict[str, Input]:
    """Everything in the graph by role, for a report."""
    roles: dict[str, Input] = {}
    for node in graph.nodes.values():
        if node.stage == Report.name:
            continue
        role = f"{node.stage}/{node.label}" if node.label else node.stage
        if role in roles:  # such as the examples of two phases
            role = f"{role}/{node.output.fingerprint[:8]}"
        roles[role] = as_input(node)
    return roles
