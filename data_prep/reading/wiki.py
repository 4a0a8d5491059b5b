"""Read MediaWiki dumps page by page and turn their markup into prose.

Reads …pages-articles….xml, plain or compressed. `read_pages` yields pages with raw wikitext.
`to_prose` drops templates, tables, references, files, categories and HTML, keeps the text of links,
and turns sections into paragraph breaks. A `link` function may mark links in the text.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from data_prep.reading.lines import LONGEST_BYTES, read_blocks, read_part, split_lines
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally

ILLEGAL_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# Templates that mark disambiguation pages on large Wikipedias, and the magic word behind them.
# The whole name must match: {{Disambiguation needed}} and {{Dabney family}} are in real articles.
DISAMBIGUATION = re.compile(
    r"__DISAMBIG__|\{\{\s*(?:(?:[\w–-]+ )*disambig(?:uation)?(?:[ -](?:page|cleanup))?|dab|hndis"
    r"|geodis|(?:human|place) name dis|begriffsklärung|homonymie|förgrening(?:ssida)?|gren(?:sida)?"
    r"|неоднозначность|desambiguación|disambigua|消歧义|消歧義|曖昧さ回避)\s*(?:\|[^{}]*)?\}\}",
    re.IGNORECASE,
)
# zhwiki's text in several scripts: -{zh-hans:计算机; zh-hant:電腦;}-, or -{text}- that is not
# converted. Flags before a bar, such as T| and H|, set a title or a rule and show nothing.
VARIANTS = re.compile(r"-\{(?:([^{}|]*)\|)?([^{}]*)\}-")
SIMPLIFIED = ("zh-hans", "zh-cn", "zh-sg")
NAMESPACE = re.compile(rb'<namespace key="(-?\d{1,6})"[^>]{0,200}>([^<]{1,200})<')
SITEINFO_BYTES = 1 << 20  # the header of a dump has some kilobytes
MEDIA, FILE, CATEGORY = -2, 6, 14  # namespace numbers, the same on every wiki


@dataclass(frozen=True)
class Page:
    """One page of a dump; `text` is its newest wikitext."""

    id: int
    title: str
    namespace: int
    redirect: bool
    text: str


@dataclass(frozen=True)
class Wiki:
    """The link prefixes of a wiki that show no text, such as files and categories."""

    hidden: frozenset[str] = frozenset({"file", "image", "media", "category"})


ENGLISH = Wiki()  # every wiki understands the English names


def read_siteinfo(file: SourceFile) -> Wiki:
    """Read the dump's own names for files and categories (Datei, Kategorie, …) from its header."""
    hidden = set(ENGLISH.hidden)
    for offset, line in split_lines(read_blocks(file, Tally())):
        match = NAMESPACE.search(line)
        if match and int(match[1]) in (MEDIA, FILE, CATEGORY):
            hidden.add(html.unescape(match[2].decode(errors="replace")).lower())
        if b"</siteinfo>" in line or b"<page" in line or offset > SITEINFO_BYTES:
            break
    return Wiki(frozenset(hidden))


def read_pages(path: Path) -> Iterator[Page]:
    """Yield every page of a dump in order with raw wikitext, also redirects and talk pages."""
    file = SourceFile(path, path.name)
    tally = Tally()
    part = Part(file, 0, path.stat().st_size)
    return split_pages(read_part(part, starts_page, tally), file.name, tally)


def starts_page(before: bytes, line: bytes) -> bool:
    """Return True if a page starts in `line`; in text, angle brackets are escaped."""
    return b"<page" in line


def split_pages(lines: Iterable[tuple[int, bytes]], name: str, tally: Tally) -> Iterator[Page]:
    """Yield the pages in a dump's (offset, line) pairs; count damage in `tally`.

    Each page is parsed by itself, so damage is limited to one page.
    """
    held: list[bytes] = []
    start, size = 0, 0
    for offset, line in lines:
        if not held and b"<page" not in line:
            continue
        if not held:
            start, size = offset, 0
        held.append(line)
        size += len(line)
        if b"</page>" in line:
            yield from _parse_pages(b"".join(held), name, start, tally)
            held = []
        elif size > LONGEST_BYTES:
            tally.read += 1
            tally.drop_damaged("page_too_long", name, start)
            held = []
    if held:
        tally.read += 1
        tally.drop_damaged("truncated_page", name, start)


def _parse_pages(data: bytes, name: str, offset: int, tally: Tally) -> Iterator[Page]:
    data = data[data.index(b"<page") : data.rindex(b"</page>") + len(b"</page>")]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        tally.repair_damaged("invalid_utf8", name, offset + error.start)
        text = data.decode(errors="replace")
    try:
        root = ElementTree.fromstring(f"<pages>{ILLEGAL_IN_XML.sub('', text)}</pages>")
        pages = [_page_of(element) for element in root.iter("page")]
    except (ElementTree.ParseError, ValueError):
        tally.read += 1
        tally.drop_damaged("malformed_page", name, offset)
        return
    tally.read += len(pages)
    yield from pages


def _page_of(page: ElementTree.Element) -> Page:
    texts = page.findall("revision/text")
    return Page(
        id=int(page.findtext("id", "")),
        title=page.findtext("title", ""),
        namespace=int(page.findtext("ns", "0")),
        redirect=page.find("redirect") is not None,
        text=(texts[-1].text or "") if texts else "",
    )


def is_disambiguation(page: Page) -> bool:
    """Return True if a page only lists the meanings of its title."""
    if page.title.endswith("(disambiguation)"):
        return True
    return DISAMBIGUATION.search(page.text) is not None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Every alternative starts with a fixed character, which keeps the search fast. No expression here
# may look at the same characters again and again: a page of one endless comment or of spaces only
# would take hours.
TOKEN = re.compile(r"\{\{|\[\[|\{\||\}\}|\]\]|\|\}(?!\})|<(/?)([a-zA-Z]+)\b[^<>]*?(/?)>|<!--")
COMMENT, COMMENT_END = "<!--", "-->"
OPENERS = {"}}": "{{", "]]": "[[", "|}": "{|"}
BEFORE_TABLE = " \t:*#;"  # may precede "{|" on a line; after anything else it is plain text
ELEMENTS_WITHOUT_PROSE = _words(
    "ref references math chem gallery table timeline score syntaxhighlight source pre imagemap "
    "hiero graph mapframe maplink templatedata style inputbox section"
)
BLOCK_ELEMENTS = _words("p div blockquote li ul ol dl dt dd center poem hr")

LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:")
HEADING = re.compile(r"(={1,6})\s*+(.+?)\s*\1\s*$")
LONGEST_HEADING = 1000  # the expression takes the square of a line's length
LONGEST_TITLE = 1000  # MediaWiki allows 255 bytes
EXTERNAL_LINK = re.compile(
    r"\[(?:https?:|ftp:|mailto:)?//[^\s\]]{0,2000}+\s{0,100}+([^\]\n]{0,2000}+)\]"
)
BARE_ADDRESS = re.compile(r"https?://[^\s<>\]]+")
EMPHASIS = re.compile(r"'{2,}")
MAGIC_WORD = re.compile(r"__[A-Z]+__")
# Remains of dropped templates: "( ; )", "(, born 1900)", "word ,".
EMPTY_BRACKETS = re.compile(r"(?<![ \t])[ \t]*+[(\[][\s,;:/–-]*+[)\]]")
BRACKET_START = re.compile(r"\([\s,;:]+")
SPACE_BEFORE_MARK = re.compile(r"(?<![ \t])[ \t]++(\)|[,.;:!?](?=\s|$))")
TERMINATORS = tuple('.!?…。！？"”')
# Titles of sections with references and links instead of prose, on the larger Wikipedias.
APPENDICES = frozenset(
    """references|external links|see also|further reading|notes|bibliography|sources|footnotes
    |citations|notes and references|einzelnachweise|weblinks|literatur|siehe auch|referenser|källor
    |externa länkar|noter|se även|примечания|ссылки|литература|см. также|références|liens externes
    |voir aussi|notes et références|referencias|enlaces externos|véase también|参考文献|外部链接
    |外部連結|注释|参见|参考资料""".replace("\n    ", "").split("|")
)


def show_label(target: str, label: str) -> str:
    """Render a link as its text; the default of `to_prose`."""
    return label


def to_prose(
    wikitext: str,
    wiki: Wiki = ENGLISH,
    link: Callable[[str, str], str] = show_label,
) -> str:
    """Return the running text of a page, with a blank line between paragraphs.

    `link(target, label)` returns the text for each link to another page.
    """
    if "-{" in wikitext:
        wikitext = VARIANTS.sub(_choose_variant, wikitext)
    text = html.unescape(_resolve(wikitext, wiki, link))
    text = EMPHASIS.sub("", MAGIC_WORD.sub("", text))
    text = BARE_ADDRESS.sub("", EXTERNAL_LINK.sub(r"\1", text))
    text = BRACKET_START.sub("(", EMPTY_BRACKETS.sub("", text))
    text = SPACE_BEFORE_MARK.sub(r"\1", text)
    return "\n\n".join(_paragraphs(text.split("\n")))


def _choose_variant(match: re.Match[str]) -> str:
    """Return the simplified variant of a text in several scripts, or the first."""
    flags, inside = match.groups()
    if flags is not None and set(flags.replace(";", "")) & set("THD-"):
        return ""
    named = [part.partition(":") for part in inside.split(";") if ":" in part]
    variants = {name.strip().lower(): text.strip() for name, _, text in named}
    if not variants or not all(name.startswith("zh") for name in variants):
        return inside
    return next((variants[n] for n in SIMPLIFIED if n in variants), next(iter(variants.values())))


def _resolve(wikitext: str, wiki: Wiki, link: Callable[[str, str], str]) -> str:
    """Render all nested markup, innermost first, in one pass with a stack.

    A frame holds the text since its opening mark. A mark that is never closed is removed and its
    text stays, so a missing bracket does not remove the rest of the page.
    """
    frames: list[tuple[str, list[str]]] = [("", [])]
    opened: Counter[str] = Counter()  # frames by kind
    position = 0

    def open_frame(kind: str) -> None:
        frames.append((kind, []))
        opened[kind] += 1

    def close(kind: str) -> str | None:
        if not opened[kind]:
            return None
        inside: list[list[str]] = []  # from the innermost frame outwards
        closed = None
        while closed != kind:
            closed, texts = frames.pop()
            opened[closed] -= 1
            inside.append(texts)
        return "".join(text for texts in reversed(inside) for text in texts)

    for match in _tokens(wikitext):
        token = match[0]
        if "|" in token[:2] and not _starts_line(wikitext, match.start()):
            continue
        parts = frames[-1][1]
        parts.append(wikitext[position : match.start()])
        position = match.end()
        if token == COMMENT:
            position = wikitext.index(COMMENT_END, position) + len(COMMENT_END)
            continue
        if token in OPENERS:
            kind = OPENERS[token]
            inside = close(kind)
            if inside is not None and kind == "[[":
                frames[-1][1].append(_render_link(inside, wiki, link))
            elif inside is not None and kind == "{{":
                frames[-1][1].append(_render_template(inside))
        elif token[0] != "<":
            open_frame(token)
        elif match[2]:
            tag = match[2].lower()
            if tag in ELEMENTS_WITHOUT_PROSE:
                if match[1]:
                    close(tag)
                elif not match[3]:
                    open_frame(tag)
            elif tag == "br":
                parts.append("\n")
            elif tag in BLOCK_ELEMENTS:
                parts.append("\n\n")
    frames[-1][1].append(wikitext[position:])
    return "".join(text for _, parts in frames for text in parts)


def _tokens(wikitext: str) -> Iterator[re.Match[str]]:
    """Yield the marks outside comments, and the beginning of every comment that ends."""
    last_end = wikitext.rfind(COMMENT_END)
    position = 0
    while match := TOKEN.search(wikitext, position):
        position = match.end()
        if match[0] == COMMENT:
            if position > last_end:  # it never ends, so it is plain text
                continue
            position = wikitext.index(COMMENT_END, position) + len(COMMENT_END)
        yield match


def _starts_line(text: str, position: int) -> bool:
    while position and text[position - 1] in BEFORE_TABLE:
        position -= 1
    return position == 0 or text[position - 1] == "\n"


def _render_link(inside: str, wiki: Wiki, link: Callable[[str, str], str]) -> str:
    target, pipe, label = inside.partition("|")
    target = target.strip()
    prefix, colon, _ = target.partition(":")
    if colon and (prefix.strip().lower() in wiki.hidden or LANGUAGE_LINK.match(target)):
        return ""
    target = target.removeprefix(":")
    if not pipe:
        label = target
    elif not label.strip():  # [[Foo (film)|]] shows Foo
        label = re.sub(r"\s*\(.*\)$", "", target) if len(target) <= LONGEST_TITLE else target
    return link(target, label)


def _render_template(inside: str) -> str:
    name, *arguments = inside.split("|")
    values = [argument.removeprefix("1=").strip() for argument in arguments]
    shown = TEMPLATES_WITH_TEXT.get(name.strip().lower())
    if shown is None and name.strip().lower().startswith("lang-"):
        shown = _first
    return shown(values) if shown else ""


def _first(values: list[str]) -> str:
    return values[0] if values else ""


def _language(values: list[str]) -> str:
    return values[1] if len(values) > 1 else ""


def _quotation(values: list[str]) -> str:
    return f"\n\n{_first(values)}\n\n"


def _measure(values: list[str]) -> str:
    # {{convert|5|km}} and {{convert|5|to|10|km}}
    ranges = ("to", "and", "by", "x", "-", "–")
    return " ".join(values[: 4 if len(values) > 3 and values[1] in ranges else 2])


TEMPLATES_WITH_TEXT: dict[str, Callable[[list[str]], str]] = {
    **dict.fromkeys(
        ("nowrap", "nobr", "small", "abbr", "smallcaps", "sic", "em", "strong"), _first
    ),
    **dict.fromkeys(("quote", "blockquote", "cquote", "quotation"), _quotation),
    **dict.fromkeys(("lang", "transl"), _language),
    **dict.fromkeys(("convert", "cvt"), _measure),
    **dict.fromkeys(("nbsp", "space", "·", "•"), lambda values: " "),
    **dict.fromkeys(("ndash", "snd", "spaced ndash"), lambda values: " – "),
    **dict.fromkeys(("mdash", "spaced mdash"), lambda values: " — "),
}


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of running text; list items only if they are sentences, no headings."""
    held: list[str] = []
    skipped_level = 0
    for line in lines:
        line = line.strip()
        may_be_heading = line.startswith("=") and len(line) <= LONGEST_HEADING
        heading = HEADING.match(line) if may_be_heading else None
        if heading:
            level = len(heading[1])
            if not skipped_level or level <= skipped_level:
                skipped_level = level if heading[2].lower() in APPENDICES else 0
        if skipped_level:
            line = ""
        is_prose = bool(line) and not heading and line[0] not in "*#:;|!" and line[:4] != "----"
        if is_prose:
            held.append(line)
            continue
        if held:
            yield " ".join(held)
            held = []
        item = line.lstrip("*#:; ")
        if not heading and line[:1] in ("*", "#", ":", ";") and item.endswith(TERMINATORS):
            yield item
    if held:
        yield " ".join(held)
