"""Scanned pages: ALTO, PAGE and METS."""

import gzip
from pathlib import Path

import pytest

from data_prep.config import CorpusConfig
from data_prep.reading.documents import RawDocument, read_documents
from data_prep.reading.source_files import Part
from data_prep.reading.sources import Survey, survey
from data_prep.reading.tally import Tally
from tests.data_prep.small_shards import everything, shard

ALTO = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v3#"><Layout><Page><PrintSpace>
<TextBlock ID="b1">
 <TextLine><String CONTENT="The" WC="{first}"/><SP/><String CONTENT="har" WC="0.8"
  SUBS_TYPE="HypPart1" SUBS_CONTENT="harbour"/><HYP CONTENT="-"/></TextLine>
 <TextLine><String CONTENT="bour" WC="0.8" SUBS_TYPE="HypPart2" SUBS_CONTENT="harbour"/><SP/>
  <String CONTENT="{word}." WC="0.9"/></TextLine>
</TextBlock>
<TextBlock ID="b2"><TextLine><String CONTENT="Second"/><String CONTENT="block."/></TextLine>
</TextBlock></PrintSpace></Page></Layout></alto>"""

PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Page>
<ReadingOrder><OrderedGroup><RegionRefIndexed index="1" regionRef="a"/>
<RegionRefIndexed index="0" regionRef="b"/></OrderedGroup></ReadingOrder>
<TextRegion id="a"><TextLine><TextEquiv conf="0.5"><Unicode>comes second</Unicode></TextEquiv>
</TextLine></TextRegion>
<TextRegion id="b"><TextLine>
<Word><TextEquiv conf="0.9"><Unicode>comes</Unicode></TextEquiv></Word>
<Word><TextEquiv conf="0.7" index="1"><Unicode>fist</Unicode></TextEquiv>
<TextEquiv conf="0.8" index="0"><Unicode>first</Unicode></TextEquiv></Word>
</TextLine></TextRegion></Page></PcGts>"""

METS = """<mets:mets xmlns:mets="http://www.loc.gov/METS/" xmlns:xlink="http://www.w3.org/1999/xlink">
<mets:fileSec><mets:fileGrp USE="ALTO">
<mets:file ID="p2"><mets:FLocat xlink:href="file://./alto/page2.xml"/></mets:file>
<mets:file ID="p1"><mets:FLocat xlink:href="alto/page1.xml"/></mets:file>
<mets:file ID="i1"><mets:FLocat xlink:href="image1.jp2"/></mets:file>
</mets:fileGrp></mets:fileSec>
<mets:structMap TYPE="LOGICAL"><mets:div><mets:fptr FILEID="p2"/></mets:div></mets:structMap>
<mets:structMap TYPE="PHYSICAL"><mets:div><mets:fptr FILEID="i1"/><mets:fptr FILEID="p1"/>
</mets:div><mets:div><mets:fptr><mets:area FILEID="p2"/></mets:fptr></mets:div></mets:structMap>
</mets:mets>"""


def read(found: Survey, tally: Tally, **keys: object) -> list[RawDocument]:
    config = CorpusConfig(**keys)  # type: ignore[arg-type]
    parts = [Part(file, 0, file.size) for file in found.files]
    return [each for part in parts for each in read_documents(part, config, tally)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A METS file with two pages in ALTO, and a page that no METS file names."""
    folder = tmp_path / "work"
    (folder / "alto").mkdir(parents=True)
    (folder / "issue_mets.xml").write_text(METS)
    (folder / "alto" / "page1.xml").write_text(ALTO.format(first="0.9", word="burnt"))
    (folder / "alto" / "page2.xml").write_text(ALTO.format(first="0.9", word="froze"))
    (folder / "alto" / "stray.xml").write_text(ALTO.format(first="0.1", word="sank"))
    return folder


def test_blocks_are_paragraphs_and_divided_words_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.xml.gz"
    path.write_bytes(gzip.compress(ALTO.format(first="0.9", word="burnt").encode()))
    [page] = read(survey(str(path)), Tally())
    assert page.id == "page.xml.gz"
    assert page.text == "The harbour burnt.\n\nSecond block."
    assert page.confidence == pytest.approx((0.9 + 0.8 + 0.8 + 0.9) / 4)


def test_page_xml_is_read_in_its_reading_order(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text(PAGE)
    [page] = read(survey(str(tmp_path)), Tally())
    assert page.text == "comes first\n\ncomes second"
    assert page.confidence == pytest.approx((0.9 + 0.8 + 0.5) / 3)


def test_the_pages_of_a_mets_file_are_one_document_in_physical_order(work: Path) -> None:
    tally = Tally()
    stray, issue = sorted(read(survey(str(work)), tally), key=lambda each: each.id)
    assert (stray.id, issue.id) == ("alto/stray.xml", "issue_mets.xml")
    first, _, second, _ = issue.text.split("\n\n")
    assert "burnt" in first and "froze" in second
    assert tally.read == 2, "pages of a work are no documents of their own"


def test_unsure_scans_are_dropped_and_counted(work: Path) -> None:
    tally = Tally()
    found = read(survey(str(work)), tally, min_confidence=0.7)
    assert [each.id for each in found] == ["issue_mets.xml"]
    assert tally.dropped == {"min_confidence": 1}


def test_pages_count_as_content_of_their_work(work: Path) -> None:
    [issue] = [file for file in survey(str(work)).files if file.format == "mets"]
    assert [page.name for page in issue.pages] == ["alto/page1.xml", "alto/page2.xml"]
    assert issue.size == sum(each.path.stat().st_size for each in issue.with_pages())
    named = survey([], {"news": str(work)}).files
    assert {each.name for file in named for each in file.with_pages()} == {
        "news/issue_mets.xml", "news/alto/page1.xml", "news/alto/page2.xml", "news/alto/stray.xml"
    }  # fmt: skip


def test_a_missing_page_and_a_damaged_page_are_counted(work: Path) -> None:
    (work / "alto" / "page1.xml").unlink()
    tally = Tally()
    found = read(survey(str(work / "issue_mets.xml").replace("issue_mets.xml", "")), tally)
    assert any("froze" in each.text for each in found)
    assert tally.repaired == {"missing_page": 1}
    (work / "alto" / "page2.xml").write_text("<alto><Layout>")
    tally = Tally()
    assert [each.id for each in read(survey(str(work)), tally)] == ["alto/stray.xml"]
    assert tally.dropped == {"no_pages": 1}


def test_a_mets_file_without_pages_is_listed_as_unread(work: Path) -> None:
    for path in (work / "alto").glob("page*"):
        path.unlink()
    assert survey(str(work)).unread == {"issue_mets.xml": "no_pages"}


def test_xml_that_declares_entities_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE alto [<!ENTITY a "aaaa">]><alto><TextBlock/></alto>'
    (tmp_path / "x.xml").write_text(bomb)
    tally = Tally()
    assert read(survey(str(tmp_path)), tally) == []
    assert tally.dropped == {"malformed_page": 1}


def test_scans_become_shards(work: Path, tmp_path: Path) -> None:
    counts = shard(tmp_path / "out", work, min_confidence=0.7)
    assert counts["documents"]["dropped"] == {"min_confidence": 1}
    [section] = everything(tmp_path / "out")
    assert section.sentences == [
        "The harbour burnt.", "Second block.", "The harbour froze.", "Second block."
    ]  # fmt: skip
