"""Write the page about a word's senses, and the same results as data.

Writes
    index.html   points, scores, judgements and the list of sentences; no network, no script
    *.svg        each figure of the page
    senses.json  points, groups and scores of every layer
Sentences and labels are written only with `show_text`.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_prep.files import write_atomically
from pipeline.inference.senses.compare import FEW
from pipeline.inference.senses.drawing import group_names, layer_name, layer_svg
from pipeline.inference.senses.separation import PERMUTATIONS
from pipeline.inference.senses.views import Layer, Senses, View
from pipeline.pages import charts
from pipeline.pages.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Figure,
    Figures,
    Note,
    Section,
    Table,
)
from pipeline.pages.page import Page, render
from pipeline.pages.wording import count, percent

READING = (
    "Each point is one occurrence of the word, placed by t-SNE so that occurrences whose vectors "
    "are alike lie close together; neither axes nor the distance of far points mean anything. "
    "Occurrences with the same vector are one point. Scores are of the vectors themselves, by "
    "cosine, not of the drawing."
)
JUDGING = (
    "Nearest neighbour: the share of occurrences whose nearest other occurrence has the same "
    "label. An encoder is judged by its best layer above layer 0, beside the best layer of "
    f"{PERMUTATIONS} shuffles of the labels: it tells senses apart where at most one shuffle in "
    "twenty does as well (p ≤ 0.05). Silhouette: from −1 to 1, above 0 where occurrences are "
    "closer to their own label's than to another's."
)
GROUPING = (
    "There are no labels, so colours are groups: k-means clusters (2 to 6, chosen by silhouette) "
    "of the layer with the highest silhouette. The other layers of that encoder keep these "
    "colours; other encoders have groups of their own. Silhouettes up to 0.25 mean no substantial "
    "structure, up to 0.5 a weak one (Kaufman and Rousseeuw 1990). A group may be a sense, or the "
    "word's place in the sentence or its capital letter. Read the sentences to find out."
)
MOST_OPEN = 40  # a longer list of occurrences is folded
HIDDEN = (
    "Sentences and names of labels are left out; points say where their occurrence is. "
    "share.text=true shows the text."
)


def make_page(senses: Senses, source: str, show_text: bool) -> Page:
    """Return the page; `source` names where the occurrences come from."""
    views = senses.views
    seen_by = ", ".join(view.encoder for view in views)
    lead = f"{count(len(senses.occurrences))} occurrences in {source}, seen by {seen_by}"
    facts = Facts([_fact(senses, view) for view in views])
    sections = [_comparison(senses, show_text)]
    for number, view in enumerate(views, start=1):
        if len(view.layers) > 1:
            figures = [
                _figure(senses, view, layer, show_text, f"encoder-{number}-layer-{layer.number}")
                for layer in view.layers
            ]
            title = f"{view.encoder}: every layer"
            sections.append(Section(f"encoder-{number}", title, [Figures(figures)]))
    sections.append(Section("occurrences", "Every occurrence", [_listed(senses, show_text)]))
    return render("senses", f"Senses of “{senses.word}”", lead, facts, sections)


def write_senses(senses: Senses, source: str, show_text: bool, out: Path) -> None:
    """Write the page, its figures and the data."""
    out.mkdir(exist_ok=True)
    described = json.dumps(describe(senses, source, show_text), indent=1, ensure_ascii=False)
    write_atomically(out / "senses.json", described + "\n")
    make_page(senses, source, show_text).write(out)


def describe(senses: Senses, source: str, show_text: bool) -> dict[str, Any]:
    """Return all results as plain data, for senses.json."""
    return {
        "word": senses.word,
        "source": source,
        "labels": group_names(senses, senses.views[0], show_text) if senses.labels else [],
        "occurrences": [
            {"place": each.place, **({"text": each.text} if show_text else {})}
            for each in senses.occurrences
        ],
        "encoders": [
            {
                "encoder": view.encoder,
                "verdict": verdict(senses, view),
                "best_layer": view.best,
                "judgement": asdict(view.judgement) if view.judgement else None,
                "groups": view.groups.tolist(),
                "layers": [
                    {**asdict(layer), "points": layer.points.round(4).tolist()}
                    for layer in view.layers
                ],
            }
            for view in senses.views
        ],
    }


def verdict(senses: Senses, view: View) -> str:
    """Return the result of an encoder's view in one sentence."""
    best = view.layers[view.best]
    if senses.labels:
        if len(senses.occurrences) < FEW:
            return f"not judged: fewer than {FEW} occurrences"
        if view.judgement is None:
            return "not judged: all occurrences have one label"
        beside = f"by chance {percent(view.judgement.chance)} %, p = {view.judgement.p:.3f}"
        if view.judgement.is_better_than_chance:
            return f"tells the senses apart ({beside})"
        if best.distinct == 1:
            return "does not tell the senses apart: it has one vector for all occurrences"
        return (
            f"does not tell the senses apart, shuffled labels do as well ({beside}): the model may "
            "be trained too briefly or be too small, or there are too few occurrences"
        )
    if len(senses.occurrences) < FEW:
        return f"fewer than {FEW} occurrences: groups mean little"
    if best.silhouette is None:
        return "no groups: the vectors hardly differ"
    how = "clear" if best.silhouette > 0.5 else "weak" if best.silhouette > 0.25 else "no clear"
    return f"{how} groups"


def _fact(senses: Senses, view: View) -> Fact:
    said = verdict(senses, view)
    if view.judgement:
        accuracy = f"{percent(view.judgement.accuracy)} %"
        return Fact(view.encoder, accuracy, f"nearest neighbour: {said}")
    return Fact(view.encoder, _silhouette(view), f"silhouette: {said}")


def _silhouette(view: View) -> str:
    """Format the silhouette of the best layer."""
    value = view.layers[view.best].silhouette
    return "–" if value is None else f"{value:.2f}"


def _comparison(senses: Senses, show_text: bool) -> Section:
    """Return the section with every encoder's best layer and the scores of all layers."""
    best = [
        _figure(senses, view, view.layers[view.best], show_text, f"best-{number}", named=True)
        for number, view in enumerate(senses.views, start=1)
    ]
    blocks: list[Block] = [Note(READING), Figures(best), _table(senses)]
    blocks += [_counts(senses, show_text)] if senses.labels else []
    blocks += [Figures([by_layer])] if (by_layer := _accuracies(senses)) else []
    blocks.append(Note(JUDGING if senses.labels else GROUPING))
    if not show_text:
        blocks.append(Note(HIDDEN))
    return Section("side-by-side", "Side by side", blocks)


def _figure(
    senses: Senses, view: View, layer: Layer, show_text: bool, name: str, named: bool = False
) -> Figure:
    layer_title = layer_name(view, layer)
    title = f"{view.encoder}, {layer_title}" if named else layer_title.capitalize()
    said = []
    if layer.accuracy is not None:
        said.append(f"nearest neighbour {percent(layer.accuracy)} %")
    if layer.silhouette is not None:
        said.append(f"silhouette {layer.silhouette:.2f}")
    if layer.distinct == 1 and len(senses.occurrences) > 1:
        said.append("all occurrences have the same vector")
    svg = layer_svg(senses, view, layer, show_text, name)
    return Figure(name, title, ", ".join(said), svg)


def _table(senses: Senses) -> Table:
    columns = [Column("encoder"), Column("best layer", True), Column("silhouette", True)]
    if senses.labels:
        columns += [
            Column("nearest neighbour", True), Column("by chance", True), Column("p", True),
        ]  # fmt: skip
    rows = []
    for view in senses.views:
        row = [view.encoder, str(view.best), _silhouette(view)]
        if view.judgement:
            judged = view.judgement
            row += [percent(judged.accuracy), percent(judged.chance), f"{judged.p:.3f}"]
        rows.append(row + ["–"] * (len(columns) - len(row)))
    return Table("Best layers", columns, rows)


def _counts(senses: Senses, show_text: bool) -> Table:
    view = senses.views[0]
    names = group_names(senses, view, show_text)
    numbers = [int((view.groups == group).sum()) for group in range(len(names))]
    rows = [[name, count(number)] for name, number in zip(names, numbers, strict=True)]
    bars = [number / max(numbers) for number in numbers]
    return Table("Occurrences", [Column("label"), Column("number", True)], rows, bars)


def _listed(senses: Senses, show_text: bool) -> Table:
    """List all occurrences by group: their places, and with `show_text` their sentences.

    A point shows its sentence on hover only, which touch screens and paper do not have.
    """
    # Labels are the same for all encoders; clusters are not.
    views = senses.views[:1] if senses.labels else senses.views
    names = [group_names(senses, view, show_text) for view in views]
    headings = ["label"] if senses.labels else [view.encoder for view in views]
    order = sorted(
        range(len(senses.occurrences)), key=lambda n: [int(view.groups[n]) for view in views]
    )
    rows = []
    for number in order:
        each = senses.occurrences[number]
        groups = [own[view.groups[number]] for own, view in zip(names, views, strict=True)]
        rows.append([*groups, each.place, *([each.text] if show_text else [])])
    columns = [*headings, "place", *(["sentence"] if show_text else [])]
    return Table("By group", [Column(name) for name in columns], rows, folded=len(rows) > MOST_OPEN)


def _accuracies(senses: Senses) -> Figure | None:
    """Draw accuracy and chance level by layer; encoders of one layer have no line."""
    series = []
    for number, view in enumerate(senses.views):
        if view.judgement is None or len(view.layers) == 1:
            continue
        reached = [(layer.number, layer.accuracy or 0.0) for layer in view.layers]
        chance = [(layer.number, view.judgement.chance) for layer in view.layers]
        series += [
            charts.Series(view.encoder, reached, colour=number),
            charts.Series(view.encoder, chance, dashed=True, colour=number),
        ]
    if not series:
        return None
    title = "Nearest neighbour by layer"
    svg = charts.lines("by-layer", title, series, x_title="layer", y_format=".0%")
    return Figure("by-layer", title, "Dashed: what the best layer reaches by chance.", svg)
