"""Draw a layer's occurrences as points: SVG for the page, an Altair chart for notebooks."""

from typing import Any

from pipeline.inference.senses.views import Layer, Senses, View
from pipeline.pages import charts


def layer_name(view: View, layer: Layer) -> str:
    """Return a layer's name for readers."""
    if len(view.layers) == 1:
        return "word vectors"
    return f"layer {layer.number}" if layer.number else "layer 0, before context"


def group_names(senses: Senses, view: View, show_text: bool) -> list[str]:
    """Return the groups' names; labels are the user's text, so numbers without `show_text`."""
    if senses.labels and show_text:
        return senses.labels
    kind = "label" if senses.labels else "group"
    return [f"{kind} {number + 1}" for number in range(int(view.groups.max()) + 1)]


def layer_dots(senses: Senses, view: View, layer: Layer, show_text: bool) -> list[charts.Dot]:
    """Return the points of a layer; notes give the place, with `show_text` also the sentence."""
    names = group_names(senses, view, show_text)
    return [
        charts.Dot(
            float(x),
            float(y),
            names[group],
            f"{names[group]}, {each.place}: {each.text}" if show_text else each.place,
        )
        for each, group, (x, y) in zip(senses.occurrences, view.groups, layer.points, strict=True)
    ]


def layer_svg(senses: Senses, view: View, layer: Layer, show_text: bool, name: str) -> str:
    """Return the drawing of one layer."""
    title = f"{view.encoder}, {layer_name(view, layer)}"
    dots = layer_dots(senses, view, layer, show_text)
    return charts.scatter(name, title, dots, group_names(senses, view, show_text))


def notebook_chart(senses: Senses, show_text: bool = True) -> Any:
    """Return an Altair chart for a notebook: one row of layers per encoder, sentences on hover."""
    import altair as alt

    rows, data = [], {}
    for view in senses.views:
        row = []
        for layer in view.layers:
            title = f"{view.encoder}, {layer_name(view, layer)}"
            data[title] = charts.dot_rows(layer_dots(senses, view, layer, show_text))
            chart = charts.dot_chart(title, group_names(senses, view, show_text))
            row.append(chart.properties(title=title, width=220, height=200))
        rows.append(alt.hconcat(*row))
    return alt.vconcat(*rows, datasets=data)
