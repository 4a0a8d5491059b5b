"""`sesame inspect unread` lists every file that the corpus has and cleaning does not read."""

from pathlib import Path

import pytest

from pipeline.commands.main import run


def test_every_file_is_listed_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("Some text.\n")
    names = [f"scan{number}.pdf" for number in range(30)]
    for name in [*names, ".hidden.txt"]:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "feed.xml").write_text("<feed/>")
    words = ["experiment=bert_tiny", f"corpus.paths={tmp_path}"]
    assert run(["inspect", "unread", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split("\t") for line in lines if not line.startswith("#")]
    assert sorted(listed) == sorted(
        [["unknown_ending", name] for name in names]
        + [["hidden", ".hidden.txt"], ["other_xml", "feed.xml"]]
    )
    assert lines[-1] == "# 1 files are read, 32 are not"
    assert any(line.startswith("# other_xml: the XML is none of") for line in lines)
