from __future__ import annotations

import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from tests.support.tables.small_tables import write_days

from delta_log.errors import InvalidRequest, StorageError
from delta_maintenance.fleet.discovery import FoundTable
from delta_maintenance.fleet.survey import survey
from delta_maintenance.fleet.survey_memory import SurveyMemory, SurveyMemoryFile
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.progress import HumanProgress


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> SurveyMemory:
    table = tmp_path_factory.mktemp("table")
    write_days(table)
    return survey([FoundTable(str(table), str(table))], lambda address, properties: HealthOptions()).memory


class Read:
    """What reading a file has given, and what was told of it."""

    def __init__(self, place: Path) -> None:
        told = io.StringIO()
        self.memory = SurveyMemoryFile(str(place)).read(HumanProgress(told))
        self.told = told.getvalue()


def test_a_memory_is_read_as_it_was_written(memory: SurveyMemory, tmp_path: Path) -> None:
    place = tmp_path / "below" / "fleet.memory"
    assert Read(place).memory == SurveyMemory()
    SurveyMemoryFile(f"file://{place}").write(memory)
    assert len(memory.tables) == 1
    assert (Read(place).memory, Read(place).told) == (memory, "")
    SurveyMemoryFile(str(place)).write(SurveyMemory())
    assert Read(place).memory == SurveyMemory()


@pytest.mark.parametrize("content", [b"", b"id,name\n1,x\n", b"\x80\x81", b"delta-maintenance report 1\n"])
def test_a_file_of_something_else_is_refused_and_left(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "fleet.memory").write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"is not the memory of a survey.* Give another address"):
        Read(tmp_path / "fleet.memory")
    assert (tmp_path / "fleet.memory").read_bytes() == content


def test_a_file_of_another_release_is_begun_anew(memory: SurveyMemory, tmp_path: Path) -> None:
    place = tmp_path / "fleet.memory"
    SurveyMemoryFile(str(place)).write(memory)
    place.write_bytes(place.read_bytes().replace(b"survey 1\n", b"survey 2\n", 1))
    found = Read(place)
    assert found.memory == SurveyMemory()
    assert "is of another release, so this survey reads all tables" in found.told


def test_a_document_of_another_shape_is_begun_anew(tmp_path: Path) -> None:
    place = tmp_path / "fleet.memory"
    documents: list[object] = [{"tables": {"/t": {"surveyed": 7}}}, [], {"tables": None}]
    for document in documents:
        place.write_bytes(b"delta-maintenance survey 1\n" + zlib.compress(msgpack.encode(document)))
        assert Read(place).memory == SurveyMemory()
        assert "is damaged" in Read(place).told


@given(data=st.data())
def test_damage_is_told_and_never_believed(
    data: st.DataObject, memory: SurveyMemory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("memory") / "fleet.memory"
    SurveyMemoryFile(str(place)).write(memory)
    whole = place.read_bytes()
    header = whole.index(b"\n") + 1
    at = data.draw(st.integers(header, len(whole) - 1))
    other = data.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=3)))
    damaged = whole[:at] + other + (whole[at + len(other) :] if other else b"")
    place.write_bytes(damaged)
    found = Read(place)
    if damaged != whole:
        assert found.memory == SurveyMemory()
        assert "is damaged" in found.told


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="relative path"):
        SurveyMemoryFile("fleet.memory")
    with pytest.raises(InvalidRequest, match="credentials"):
        SurveyMemoryFile("s3://key:secret-secret@lake/fleet.memory")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StorageError):
        Read(tmp_path / "directory")
