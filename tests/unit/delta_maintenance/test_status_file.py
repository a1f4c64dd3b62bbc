from __future__ import annotations

from pathlib import Path

import pytest

from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.contract import ContractError, JobReport
from delta_maintenance.optimize.commit.orphans import _MANIFEST
from delta_maintenance.progress import ProgressLines
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.status_file import StatusFile, StatusLines

KEY, OTHER = RunKey("ab" * 32), RunKey("cd" * 32)
ID = "0123456789abcdef" * 2
REPORT = JobReport("optimize", "/t", "committed", run_id="r", version=7)


@pytest.fixture
def status(tmp_path: Path) -> StatusFile:
    return StatusFile(LocalStorage(str(tmp_path)), "r", ID)


def test_a_report_comes_back_to_the_holder_of_the_runs_key_alone(status: StatusFile) -> None:
    assert status.report(KEY) is None
    status.write(KEY, report=REPORT.to_dict())
    assert status.report(KEY) == REPORT
    assert status.report(OTHER) is None
    assert status.progress() is None


def test_the_lines_of_a_job_become_its_progress(status: StatusFile) -> None:
    lines = ProgressLines(StatusLines(status, KEY), 0)
    lines.start(4, 400)
    lines.bin_done("a", 100)
    found = status.progress()
    assert found is not None
    assert (found["done_bins"], found["total_bins"], found["done_bytes"]) == (1, 4, 100)
    assert status.report(KEY) is None


def test_what_is_cut_flipped_or_of_another_run_is_no_report(status: StatusFile, tmp_path: Path) -> None:
    status.write(KEY, report=REPORT.to_dict())
    file = tmp_path / status.key
    content = file.read_bytes()
    for changed in [content[:at] for at in range(0, len(content), 7)] + [
        content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))
    ]:
        file.write_bytes(changed)
        assert status.report(KEY) in (None, REPORT), "the version of the format may be any number"
        status.progress()
    other = StatusFile(LocalStorage(str(tmp_path)), "other", ID)
    (tmp_path / other.key).parent.mkdir(parents=True)
    (tmp_path / other.key).write_bytes(content)
    assert other.report(KEY) is None


def test_it_is_deleted_with_old_manifests(status: StatusFile) -> None:
    assert _MANIFEST.fullmatch(status.key)


@pytest.mark.parametrize("submission", ["", "../x", "0" * 31, "G" * 32])
def test_an_id_that_is_no_name_is_refused(submission: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="hexadecimal"):
        StatusFile(LocalStorage(str(tmp_path)), "r", submission)
