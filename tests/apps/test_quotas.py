"""CPU quotas, on a folder that looks like Linux's control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unskew.apps import quotas
from unskew.apps.quotas import Quotas

NOBODY = 2**22 + 1
"""No process has this number."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return control groups in which this process is in one that others may not be made in."""
    own = tmp_path / "user" / "session"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / "user" / "cgroup.subtree_control").write_text("cpu memory")
    (own / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(quotas, "_own_group", lambda root: own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    return tmp_path


def test_every_executor_has_the_part_of_its_cores_that_is_its_speed(root: Path) -> None:
    made = Quotas({0: NOBODY, 1: NOBODY + 1, 2: NOBODY + 2}, cores=2, root=root)
    assert made.start()
    groups = sorted((root / "user").glob("unskew-*"))
    assert len(groups) == 3
    assert [(group / "cgroup.procs").read_text() for group in groups] == [
        f"{NOBODY + number}\n" for number in range(3)
    ]
    made.limit((1.0, 1.0, 0.3))
    told = [(group / "cpu.max").read_text() for group in groups]
    assert told == ["200000 100000\n", "200000 100000\n", "60000 100000\n"]
    made.stop()
    # What is left in them goes back; Linux lets go of groups without processes.
    assert (root / "user" / "session" / "cgroup.procs").read_text() == f"{NOBODY + 2}\n"


def test_without_a_core_for_each_executor_there_are_no_quotas(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert not Quotas({0: NOBODY, 1: NOBODY}, cores=2, root=root).start()
    assert not list((root / "user").glob("unskew-*"))


@pytest.mark.parametrize("missing", ["cgroup.controllers", "user/cgroup.subtree_control"])
def test_where_no_group_can_be_made_there_are_no_quotas(root: Path, missing: str) -> None:
    (root / missing).unlink()
    assert not Quotas({0: NOBODY}, cores=1, root=root).start()


def test_a_group_that_cannot_be_written_ends_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, text: str) -> int:
        raise PermissionError(self)

    monkeypatch.setattr(Path, "write_text", refuse)
    assert not Quotas({0: NOBODY}, cores=1, root=root).start()
