"""The documentation: commands run or compose, links lead somewhere, the reference is current.

Commands that end soon are run on the smoke recipe's store, all others are composed. YAML blocks
with `# conf/<group>/<name>.yaml` in their first two lines are files that these commands see.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import yaml

from pipeline.cluster.site import read_site
from pipeline.commands.arguments import parse
from pipeline.commands.bench import subjects
from pipeline.commands.catalogue import COMMANDS
from pipeline.commands.reference import pages
from pipeline.commands.store_files import BESIDE_OUTPUTS, EVERY_OUTPUT, STORE_FILES, StoreFile
from pipeline.config.compose import GROUPS, compose_config, describe_keys, group_options
from pipeline.config.schema import Config
from pipeline.config.sweep import read_sweep
from tests.conftest import Sesame

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
NOTEBOOK = DOCS / "tutorial.ipynb"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
# What speaks of today's keys: the reference is generated, and the changelog names old ones.
CURRENT = [
    page for page in PAGES if page.parent.name != "reference" and page.name != "CHANGELOG.md"
]
QUICK = ("plan", "list", "path", "inspect", "du", "doctor", "clean")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
MOST_README_LINES = 220
MOST_PICTURE_BYTES = 200_000


@cache
def text_of(page: Path) -> str:
    return page.read_text()


@cache
def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text_of(page))


def blocks(language: str) -> list[tuple[Path, str]]:
    """All code blocks of a language, with the page each stands on."""
    found = ((page, match) for page in PAGES for match in FENCE.findall(text_of(page)))
    return [(page, code) for page, (name, code) in found if name == language]


def commands(code: str) -> list[tuple[str, ...]]:
    """The commands of a shell block; `a && b` are two."""
    parts = [part for line in code.splitlines() for part in line.split(" && ")]
    return [tuple(words) for part in parts if (words := shlex.split(part, comments=True))]


def shown_on(page: Path) -> list[tuple[str, ...]]:
    """The sesame commands of a page's shell blocks."""
    codes = [code for name, code in FENCE.findall(text_of(page)) if name == "bash"]
    return [words[1:] for code in codes for words in commands(code) if words[0] == "sesame"]


ALL = dict.fromkeys(words for _, code in blocks("bash") for words in commands(code))
SESAME = [words[1:] for words in ALL if words[0] == "sesame"]


def is_quick(words: tuple[str, ...]) -> bool:
    """Whether a command ends soon and finds what it needs in the smoke recipe's store."""
    recipes = {word for word in words if word.startswith("experiment=")}
    return words[0] in QUICK and recipes <= {"experiment=smoke"}


def to_compose(words: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides of a command; keys of the command itself and Hydra's own are none."""
    own = re.findall(r"(?<![\w.])(\w+)=", COMMANDS[words[0]].takes)
    kept = [
        word
        for word in parse(list(words)).overrides
        if word.startswith("encoder=") or word.partition("=")[0] not in own
        if not word.startswith("hydra")
    ]
    return tuple(kept)


COMPOSED = {to_compose(words): words for words in SESAME if not is_quick(words)}  # each once


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the files that YAML blocks show, and a list that a key names."""
    folder = tmp_path_factory.mktemp("described")
    for _, code in blocks("yaml"):
        if named := re.match(r"(?:# @.*\n)?# ((?:conf/\w+/)?\w+\.yaml)\b", code):
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            assert not path.exists(), f"two blocks show {named[1]}"
            path.write_text(code)
    (folder / "names.txt").write_text("Quillfeather\n")
    return folder


def test_readme_shows_both_commands() -> None:
    assert {("make", "demo"), ("make", "test")} <= ALL.keys()


def test_readme_shows_every_use_of_a_fine_tuned_model() -> None:
    assert {"predict", "evaluate", "embed", "onnx", "publish"} <= {w[0] for w in shown_on(README)}
    assert "load_model(" in text_of(README)


def test_every_subject_of_bench_is_in_measuring() -> None:
    listed = {words[1] for words in shown_on(DOCS / "measuring.md") if words[0] == "bench"}
    assert listed == set(subjects())


def test_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("words", [w for w in ALL if w[0] == "make"], ids=" ".join)
def test_make_commands_are_targets(words: tuple[str, ...]) -> None:
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("words", [w for w in SESAME if is_quick(w)], ids=" ".join)
def test_quick_commands_work(smoke: Sesame, words: tuple[str, ...]) -> None:
    smoke.succeed(*words)


@pytest.mark.parametrize("overrides", COMPOSED, ids=[" ".join(w) for w in COMPOSED.values()])
def test_other_commands_compose(
    described: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    """Of a sweep, the first point."""
    monkeypatch.chdir(described)
    is_sweep = "-m" in COMPOSED[overrides]
    compose_config(read_sweep(list(overrides)).first() if is_sweep else list(overrides))


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_commands_and_keys_in_the_text_exist(
    page: Path, described: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(described)
    sections = tuple(Config.__dataclass_fields__)
    known = {key for key, _, _ in describe_keys(sections)}
    dotted = re.compile(rf"(?<![\w./-])((?:{'|'.join(sections)})\.[a-z_]+)\b(?![./])")
    for code in INLINE.findall(prose(page)):
        if command := re.match(r"sesame (\w+)", code):
            assert command[1] in COMMANDS, code
        for key in dotted.findall(code):
            is_file = key.endswith((".json", ".py", ".txt", ".yaml", ".md"))
            assert is_file or key in known or key == "task.members", f"{key} in `{code}`"
        for group, choice in re.findall(rf"\b({'|'.join(GROUPS)})=(\w+)(?![\w.@])", code):
            assert choice in group_options(group), code


@pytest.mark.parametrize(
    ("page", "code"), blocks("python"), ids=lambda value: getattr(value, "name", "")
)
def test_python_blocks_compile(page: Path, code: str) -> None:
    ast.parse(code, page.name)


@pytest.mark.parametrize(
    ("page", "code"), blocks("yaml"), ids=lambda value: getattr(value, "name", "")
)
def test_yaml_blocks_are_valid(page: Path, code: str) -> None:
    assert isinstance(yaml.safe_load(code), dict)


def test_extras_are_named_as_they_are_installed() -> None:
    """A package of another name may be somebody else's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code = [path for room in ("pipeline", "data_prep") for path in (ROOT / room).rglob("*.py")]
    texts = map(text_of, [*PAGES, *code])
    found = {
        each for text in texts for each in re.findall(r"pip install '([^'\[]+)\[(\w+)\]", text)
    }
    assert {"onnx", "ray", "remote"} <= {extra for _, extra in found}
    assert {name for name, _ in found} == {project["name"]}
    assert {extra for _, extra in found} <= project["optional-dependencies"].keys()


def test_the_site_file_is_accepted(described: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME_SITE", str(described / "site.yaml"))
    assert read_site().of("pretrain").gpus == "a100"


def messages() -> str:
    """Every string of the code, `…` where it has a placeholder."""
    found = []
    for path in [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_troubleshooting_quotes_real_messages() -> None:
    known = messages()
    rows = re.findall(r"^\| `([^`]+)` \|", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)
    assert rows
    for message in rows:
        if message.startswith(("zsh:", "No space left")):  # the shell's and the system's
            continue
        for part in message.split("…"):
            wanted = part.strip(" :;,.=()")
            assert wanted in known, f"{message}: no message has {wanted!r}"


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for heading in HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "mailto:")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leaves the repository"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_in_the_index() -> None:
    index = text_of(DOCS / "README.md")
    for page in DOCS.rglob("*.md"):
        assert page.name == "README.md" or f"({page.relative_to(DOCS)})" in index, page.name


def test_pictures_are_small() -> None:
    for picture in [*DOCS.glob("*.png"), *DOCS.glob("*.svg")]:
        assert picture.stat().st_size <= MOST_PICTURE_BYTES, picture.name


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    section = text_of(README).partition("## Results")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    figures = set(re.findall(r"\d[\d,.]*", " ".join(INLINE.sub("", LINK.sub("", r)) for r in rows)))
    assert figures
    missing = {
        figure for figure in figures if figure.rstrip(".,") not in text_of(DOCS / "results.md")
    }
    assert not missing


@pytest.mark.parametrize(("name", "text"), pages().items(), ids=pages())
def test_the_reference_is_current(name: str, text: str) -> None:
    assert (DOCS / "reference" / name).read_text() == text, "run: make docs"


def test_the_reference_is_made_without_torch() -> None:
    code = (
        "import sys, pipeline.commands.reference as r; r.pages(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def fits(path: str, file: StoreFile) -> bool:
    """Whether a file below its folder is what a line of the table describes."""
    pattern = re.sub(r"<\w+>", "*", file.pattern)
    if pattern.endswith("/**"):
        return path.startswith(pattern.removesuffix("**"))
    return path.count("/") == pattern.count("/") and fnmatch(path, pattern)


def test_the_store_page_names_every_file_of_a_run(smoke: Sesame) -> None:
    by_stage: dict[str, set[str]] = {}
    beside = set()
    for path in smoke.store.rglob("*"):
        parts = path.relative_to(smoke.store).parts
        if path.is_dir():
            continue
        if parts[0] in STORE_FILES:
            by_stage.setdefault(parts[0], set()).add("/".join(parts[2:]))
        else:
            beside.add("/".join(parts))
    for stage, paths in by_stage.items():
        table = (*EVERY_OUTPUT, *STORE_FILES[stage])
        unknown = [path for path in paths if not any(fits(path, file) for file in table)]
        assert not unknown, f"{stage}: not in store_files.py: {unknown}"
        missing = [
            file.pattern
            for file in table
            if file.is_in_smoke and not any(fits(path, file) for path in paths)
        ]
        assert not missing, f"{stage}: not written: {missing}"
    assert not [path for path in beside if not any(fits(path, file) for file in BESIDE_OUTPUTS)]


def notebook_cells() -> list[str]:
    """The notebook's code."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_follows_the_tutorial() -> None:
    page = [code for where, code in blocks("bash") if where.name == "tutorial.md"]
    told = [words[1] for code in page for words in commands(code) if words[0] == "sesame"]
    shell = [code for code in notebook_cells() if code.startswith("%%bash\nset -e\n")]
    done = [words[1] for code in shell for words in commands(code) if words[0] == "sesame"]
    rest = iter(told)
    assert done and all(name in rest for name in done), f"{done} is no part of {told}"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("SESAME_STORE", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear its outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    assert "(6, 3, 128)" in str(notebook.cells[-1].outputs)
