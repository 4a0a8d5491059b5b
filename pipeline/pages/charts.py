"""Altair charts as SVG, readable on light and dark backgrounds, on screen and on paper.

The SVG has the light theme's colours as plain attributes, so that every program shows them. A style
inside each file replaces them by the dark theme's colours on screens that ask for it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pipeline.pages.wording import PART

WIDTH, HEIGHT = 360, 220  # small, so that text stays readable on a phone
MOST_POINTS = 240  # maximum points per line; more would not be visible
# Fonts with equal glyph widths: text is measured here but drawn by the reader's program.
FONT = "Helvetica, Arial, Liberation Sans, sans-serif"
MOST_TICKS = 8  # of an axis with a tick per whole number
NUMBER = ".3~r"  # three digits, never an exponent
LONG_NAME = 22  # maximum characters of a name in a legend with two columns
LEGEND_LINE_HEIGHT = 14  # pixels per line of a legend

INK, MUTED, RULE = "#23272e", "#636b75", "#dedbd4"
SERIES = ("#2f6299", "#b9771c", "#2c7f6d", "#8c4f82", "#7a6a58", "#c0503f")
SHAPES = ("circle", "triangle-up", "square", "diamond", "triangle-down")
DARK = {
    INK: "#e8e5df", MUTED: "#a0a8b2", RULE: "#353b43",
    **dict(zip(SERIES, ("#84b4e3", "#e3ae60", "#6fc4b0", "#c998bf", "#b8a893", "#ec8d7c"),
               strict=True)),
}  # fmt: skip


@dataclass(frozen=True)
class Series:
    """A line of a chart: name, points sorted by x, and style."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    colour: int = 0  # index into SERIES
    marks: Sequence[float] = ()  # vertical rules, such as restarts


@dataclass(frozen=True)
class Interval:
    """A mean with its deviation and the single values."""

    name: str
    values: Sequence[float]
    mean: float
    deviation: float
    colour: int = 0


@dataclass(frozen=True)
class Band:
    """Means by x, each with its deviation."""

    name: str
    points: Sequence[tuple[float, float, float]]  # x, mean, deviation
    colour: int = 0


def lines(
    name: str,
    title: str,
    series: Sequence[Series],
    *,
    x_title: str = "step",
    whole: bool = True,
    y_format: str = NUMBER,
    zero: bool = False,
    legend: bool = False,
    width: float = 1.8,
) -> str:
    """Draw lines over a common x; series of equal names are separate lines of one colour.

    `whole`: x are whole numbers; `legend`: even for one line; `width`: of the lines in pixels.
    """
    import altair as alt

    def values(points: list[Point], item: Series, line: int) -> list[dict[str, Any]]:
        told = {"series": item.name, "dash": item.dashed, "colour": _colour(item), "line": line}
        return [vars(point) | told for point in points]

    thinned = [(item, thin(item.points)) for item in series]
    data = [row for n, (item, points) in enumerate(thinned) for row in values(points, item, n)]
    first, last = (bound(row["x"] for row in data) for bound in (min, max))
    x_format = "~s" if last >= 10_000 else ",.0f" if whole else NUMBER
    # Vega would put ticks between whole numbers, and label two of them alike.
    is_short = whole and last - first <= MOST_TICKS
    ticks = {"values": list(range(int(first), int(last) + 1))} if is_short else {"tickCount": 5}
    x_axis = alt.Axis(format=x_format, **ticks)
    x = alt.X("x:Q", title=x_title, axis=x_axis, scale={"nice": False})
    scale = alt.Scale(zero=zero, nice=True)
    y_axis = alt.Axis(format=y_format, tickCount=5)
    palette = _palette(series)
    base = alt.Chart(alt.NamedData("points"))
    layers = [
        base.mark_area(opacity=0.18).encode(
            x,
            alt.Y("low:Q", title=None, axis=y_axis, scale=scale),
            alt.Y2("high:Q"),
            alt.Fill("colour:N", scale=None),  # without a separate legend
            alt.Detail(["series:N", "dash:N", "line:N"]),
        ),
        base.mark_line(strokeWidth=width, strokeJoin="round").encode(
            x,
            alt.Y("y:Q", title=None, axis=y_axis, scale=scale),
            alt.Detail("line:N"),
            alt.Color("series:N", scale=palette, legend=_legend(alt, series, legend)),
            alt.StrokeDash(
                "dash:N", scale={"domain": [False, True], "range": [[1, 0], [5, 3]]}, legend=None
            ),
        ),
    ]
    lone = [row for item, points in thinned if len(points) == 1 for row in values(points, item, 0)]
    if lone:  # a line needs two points
        dots = alt.Chart(alt.NamedData("lone")).mark_point(size=40, strokeWidth=0)
        layers.append(dots.encode(x, alt.Y("y:Q"), alt.Fill("colour:N", scale=None)))
    marks = [{"x": x, "colour": _colour(item)} for item in series for x in item.marks]
    if marks:
        rules = alt.Chart(alt.NamedData("marks")).mark_rule(strokeDash=[2, 3], strokeWidth=1)
        layers.append(rules.encode(alt.X("x:Q"), alt.Stroke("colour:N", scale=None)))
    datasets = {"points": data, "lone": lone, "marks": marks}
    return _draw(alt.layer(*layers), datasets, name, title, _height(series))


def histogram(
    name: str,
    title: str,
    bins: Sequence[tuple[float, float, float]],
    *,
    x_title: str,
    doubling: bool = False,
) -> str:
    """Draw bars of (low, high, count). `doubling`: a logarithmic x axis for doubling bins."""
    import altair as alt

    scale = alt.Scale(type="log", base=2, nice=False) if doubling else alt.Scale(nice=False)
    lows = [low for low, _, _ in bins]
    ticks = {"values": lows[:: 1 + len(bins) // 9]} if doubling else {"tickCount": 6}

    data = [{"low": low, "high": high, "count": number} for low, high, number in bins]
    chart = alt.Chart(alt.NamedData("bins")).mark_bar(color=SERIES[0], binSpacing=1)
    return _draw(
        chart.encode(
            alt.X(
                "low:Q",
                bin="binned",
                title=x_title,
                scale=scale,
                axis=alt.Axis(format=",.0f", **ticks),
            ),
            alt.X2("high:Q"),
            alt.Y("count:Q", title=None, axis=alt.Axis(format="~s", tickCount=5)),
        ),
        {"bins": data},
        name,
        title,
    )


@dataclass(frozen=True)
class Dot:
    """A point of a group, with the note shown on hover."""

    x: float
    y: float
    group: str
    note: str = ""


def scatter(name: str, title: str, dots: Sequence[Dot], groups: Sequence[str]) -> str:
    """Draw points on a plane without axes, where only distances matter; hover needs no script."""
    height = 260 + 16 * math.ceil(len(groups) / 2)  # the legend has two names per line
    drawn = _draw(dot_chart("dots", groups), {"dots": dot_rows(dots)}, name, title, height)
    waiting = iter(dots)  # the SVG's symbols have the order of the data

    def noted(path: re.Match[str]) -> str:
        note = next(waiting).note
        return f"{path[1]}><title>{escape(note)}</title></path>" if note else path[0]

    return re.sub(
        r'<g class="mark-symbol role-mark.*?</g>',
        lambda marks: re.sub(r"(<path[^>]*)/>", noted, marks[0]),
        drawn,
        count=1,
        flags=re.DOTALL,
    )


def dot_rows(dots: Sequence[Dot]) -> list[dict[str, Any]]:
    """Return the data for `dot_chart`."""
    return [vars(dot) for dot in dots]


def dot_chart(data: str, groups: Sequence[str]) -> Any:
    """Return the same drawing as an Altair chart of named data; groups have colour and shape."""
    import altair as alt

    def scale(values: Sequence[str]) -> dict[str, list[str]]:
        cycle = [values[number % len(values)] for number in range(len(groups))]
        return {"domain": list(groups), "range": cycle}

    legend = alt.Legend(orient="top", title=None, labelLimit=140, columns=2, symbolSize=70)
    plane = alt.Scale(zero=False, nice=False, padding=10)
    return (
        alt.Chart(alt.NamedData(data))
        .mark_point(filled=True, size=60, opacity=0.85)
        .encode(
            alt.X("x:Q", axis=None, scale=plane),
            alt.Y("y:Q", axis=None, scale=plane),
            alt.Color("group:N", scale=scale(SERIES), legend=legend),
            alt.Shape("group:N", scale=scale(SHAPES), legend=legend),
            alt.Tooltip(["group:N", "note:N"]),
        )
    )


def intervals(name: str, title: str, items: Sequence[Interval]) -> str:
    """Draw one line per mean with its deviation, and the single values as small dots."""
    import altair as alt

    order = [item.name for item in items]
    means = [
        {
            "name": item.name,
            "mean": 100 * item.mean,
            "low": 100 * (item.mean - item.deviation),
            "high": 100 * (item.mean + item.deviation),
            "colour": _colour(item),
        }
        for item in items
    ]
    dots = [
        {"name": item.name, "value": 100 * value, "colour": _colour(item)}
        for item in items
        for value in item.values
    ]
    y_axis = alt.Axis(grid=False, labelLimit=150, labelExpr=f"split(datum.label, '{PART}')")
    y = alt.Y("name:N", sort=order, title=None, axis=y_axis)
    x_axis = alt.Axis(tickCount=5, format=NUMBER)
    x_scale = alt.Scale(zero=False, nice=True, padding=8)
    colour = alt.Color("colour:N", scale=None, legend=None)
    base = alt.Chart(alt.NamedData("means"))
    chart = alt.layer(
        base.mark_rule(strokeWidth=2.5).encode(
            alt.X("low:Q", title=None, axis=x_axis, scale=x_scale), alt.X2("high:Q"), y, colour
        ),
        base.mark_point(filled=True, size=90, opacity=1).encode(alt.X("mean:Q"), y, colour),
        alt.Chart(alt.NamedData("dots"))
        .mark_point(filled=False, size=34, strokeWidth=1.2, opacity=0.8, yOffset=14)
        .encode(alt.X("value:Q"), y, colour),
    )
    datasets = {"means": means, "dots": dots}
    row = max(46, 18 * max(1 + item.name.count(PART) for item in items))
    return _draw(chart, datasets, name, title, height=60 + row * len(items))


def bands(name: str, title: str, items: Sequence[Band], *, x_title: str) -> str:
    """Draw means with deviations over x, on a logarithmic x axis."""
    import altair as alt

    data = [
        {
            "series": item.name, "colour": _colour(item), "x": x, "y": 100 * mean,
            "low": 100 * (mean - deviation), "high": 100 * (mean + deviation),
        }
        for item in items
        for x, mean, deviation in item.points
    ]  # fmt: skip
    ticks = sorted({x for item in items for x, _, _ in item.points})
    x_axis = alt.Axis(values=ticks, format="~s" if ticks[-1] >= 10_000 else ",.0f")
    x = alt.X("x:Q", title=x_title, axis=x_axis, scale=alt.Scale(type="log", base=2, nice=False))
    scale, y_axis = alt.Scale(zero=False, nice=True), alt.Axis(format=NUMBER, tickCount=5)
    colour = alt.Color("series:N", scale=_palette(items), legend=_legend(alt, items))
    base = alt.Chart(alt.NamedData("points"))
    chart = alt.layer(
        base.mark_area(opacity=0.18).encode(
            x,
            alt.Y("low:Q", title=None, axis=y_axis, scale=scale),
            alt.Y2("high:Q"),
            alt.Fill("colour:N", scale=None),
            alt.Detail("series:N"),
        ),
        base.mark_line(strokeWidth=1.8, strokeJoin="round").encode(x, alt.Y("y:Q"), colour),
        base.mark_point(size=40, strokeWidth=0, opacity=1).encode(
            x, alt.Y("y:Q"), alt.Fill("colour:N", scale=None)
        ),
    )
    return _draw(chart, {"points": data}, name, title, _height(items))


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float
    high: float


def thin(points: Sequence[tuple[float, float]]) -> list[Point]:
    """Reduce to at most MOST_POINTS points: the mean, minimum and maximum of equal runs."""
    run = -(-len(points) // MOST_POINTS) or 1
    thinned = []
    for start in range(0, len(points), run):
        xs, ys = zip(*points[start : start + run], strict=True)
        thinned.append(Point(sum(xs) / len(xs), sum(ys) / len(ys), min(ys), max(ys)))
    return thinned


def _colour(item: Series | Interval | Band) -> str:
    return SERIES[item.colour % len(SERIES)]


def _palette(series: Sequence[Series] | Sequence[Band]) -> dict[str, list[str]]:
    colours = {item.name: _colour(item) for item in series}
    return {"domain": list(colours), "range": list(colours.values())}


def _legend(alt: Any, series: Sequence[Series] | Sequence[Band], always: bool = False) -> Any:
    names = {item.name for item in series}
    if len(names) < 2 and not always:
        return None
    columns = _legend_columns(names)
    limit = (WIDTH - 80) // columns
    return alt.Legend(
        orient="top", title=None, symbolType="stroke", labelLimit=limit, columns=columns
    )


def _legend_columns(names: set[str]) -> int:
    return 2 if max(map(len, names)) <= LONG_NAME else 1


def _height(series: Sequence[Series] | Sequence[Band]) -> int:
    """Return the height of a chart, larger for a legend of several lines."""
    names = {item.name for item in series}
    return HEIGHT + LEGEND_LINE_HEIGHT * ((len(names) - 1) // _legend_columns(names))


def _draw(
    chart: Any,
    datasets: dict[str, list[dict[str, Any]]],
    name: str,
    title: str,
    height: int = HEIGHT,
) -> str:
    """Return a chart's SVG; the data is added last, since Altair copies and checks its data."""
    import vl_convert

    text = {"labelFont": FONT, "titleFont": FONT, "labelColor": MUTED, "titleColor": MUTED}
    size = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    whole = chart.properties(
        width=WIDTH, height=height, background="transparent", padding=4,
        autosize={"type": "fit", "contains": "padding"},
    ).configure(aria=False, font=FONT).configure_view(stroke=None).configure_axis(
        **text, **size, grid=True, gridColor=RULE, domainColor=RULE, ticks=False, labelPadding=6,
        titlePadding=8, labelOverlap=True,
    ).configure_axisX(grid=False).configure_legend(
        labelFont=FONT, labelColor=INK, labelFontSize=12, offset=6, columnPadding=14,
    )  # fmt: skip
    spec = whole.to_dict() | {"datasets": datasets}
    return finish_svg(vl_convert.vegalite_to_svg(spec), name, title)


def finish_svg(svg: str, name: str, title: str) -> str:
    """Add a title and the dark theme to an SVG, and make its ids unique on the page."""
    svg = re.sub(r'(\bid="|url\(#)(?=\w)', rf"\g<1>{name}-", svg)
    dark = "".join(
        f'.figure [{attribute}="{light}"]{{{attribute}:{colour}}}'
        for light, colour in DARK.items()
        for attribute in ("fill", "stroke")
    )
    style = f"<style>@media screen and (prefers-color-scheme:dark){{{dark}}}</style>"
    head = f"<title>{escape(title)}</title>{style}"
    root = 'class="figure" role="img"'
    return re.sub(r'class="marks"([^>]*)>', lambda found: f"{root}{found[1]}>{head}", svg, count=1)
