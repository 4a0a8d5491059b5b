"""Stage `report`: writes one self-contained page about a run, or a comparison of several.

Reads the outputs of all other stages, by role. Writes
    index.html  scores with published ones, layers, errors, curves, data, settings, next commands;
                no network access and no scripts
    *.svg       one file per figure of the page
Try it: sesame report experiment=smoke, or sesame report 'runs=[demo,elmo_demo]'
"""

from dataclasses import replace
from typing import Any

from data_prep.progress import console
from pipeline.config.schema import Config
from pipeline.stages.model import add_models
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
    """The stage that writes the report page."""

    name = "report"
    format = 6
    sections = ("report", "share")

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return nothing: `add_report` passes its inputs to the graph directly."""
        return {}

    def keys(self, config: Config) -> dict[str, Any]:
        """Return title and permission; for a page that compares no runs also this run's name,
        which the page shows. The names of compared runs are in the roles of its inputs."""
        shown = {} if config.runs else {"run": {"name": config.name}}
        return super().keys(config) | shown

    def run(self, work: Work) -> dict[str, Any]:
        """Write the page; name the outputs of other versions that it cannot show."""
        from pipeline.report.collect import collect
        from pipeline.report.page import make_page
        from pipeline.report.running import left_out_sentence

        collected = collect(work.inputs)
        for made in collected.left_out:
            console.print(f"left out: {left_out_sentence(made)}", markup=False, soft_wrap=True)
        page = make_page(collected, work.config)
        page.write(work.out)
        return {
            "outputs": len(collected.made),
            "sections": [section.anchor for section in page.sections],
            "figures": [figure.name for figure in page.figures],
        }

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add the page about everything in the graph so far, and about the models kept of it."""
        add_models(graph)
        add_report(graph, instance.config, reported(graph))


def add_report(graph: Planner, config: Config, about: dict[str, Input]) -> Node:
    """Add the page about the given outputs, by role; return its node.

    The page shows text only if every instance of the graph allows it, because an instance may read
    a private task.
    """
    shared = bool(config.share.text) and all(n.config.share.text for n in graph.nodes.values())
    own = replace(config, share=replace(config.share, text=shared))
    return graph.place(Report.name, own, "", about)


def reported(graph: Planner) -> dict[str, Input]:
    """Return all outputs of the graph by role, for a report."""
    roles: dict[str, Input] = {}
    for node in graph.nodes.values():
        if node.stage == Report.name:
            continue
        role = f"{node.stage}/{node.label}" if node.label else node.stage
        if role in roles:  # for example the examples of two phases
            role = f"{role}/{node.output.fingerprint[:8]}"
        roles[role] = as_input(node)
    return roles
