"""A result file is whole or absent, and what stops it is one line about the path that the user wrote."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.files import atomic
from scenarios.files.atomic import (
    NoFolderError,
    NoSpaceError,
    NotAllowedError,
    OutputError,
    TargetIsFolderError,
    write_bytes,
    write_folder,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_text_is_written_as_utf8_with_its_own_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "out.csv", "名,µs\r\na,1\n")
    assert (tmp_path / "out.csv").read_bytes() == "名,µs\r\na,1\n".encode()
    assert names(tmp_path) == ["out.csv"]


def test_pieces_are_written_in_order(tmp_path: Path) -> None:
    write_text(str(tmp_path / "out"), iter(["a", "", "b"]))
    write_bytes(tmp_path / "raw", [b"\x00", b"\xff"])
    assert (tmp_path / "out").read_bytes() == b"ab"
    assert (tmp_path / "raw").read_bytes() == b"\x00\xff"


def test_an_existing_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old and longer")
    target.chmod(0o640)
    write_text(target, "new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "out", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [RuntimeError("in the middle"), KeyboardInterrupt(), OSError("of the source")])
def test_a_failing_source_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def pieces() -> Iterator[str]:
        yield "half of the n"
        raise error

    with pytest.raises(type(error)) as caught:
        write_text(target, pieces())
    assert caught.value is error
    assert target.read_text() == "old"
    assert names(tmp_path) == ["out.json"]


def test_a_failing_source_makes_no_file_where_there_was_none(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "out", ["fine", "\ud800"])
    assert names(tmp_path) == []


def test_a_reader_sees_the_old_text_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    seen = []

    def pieces() -> Iterator[str]:
        yield "ne"
        seen.append(target.read_text())
        yield "w"

    write_text(target, pieces())
    assert seen == ["old"]
    assert target.read_text() == "new"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("made")
    write_text(tmp_path / "link", "new")
    write_text(tmp_path / "dangling", "made too")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "made").read_text() == "made too"


def test_a_temporary_name_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / f".whatif-{os.getpid()}-0.tmp"
    left.write_text("of a run that was killed")
    write_text(tmp_path / "out", "x")
    assert left.read_text() == "of a run that was killed"
    assert names(tmp_path) == [left.name, "out"]


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "x")
    assert names(tmp_path) == ["n" * 255]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "x" * 200_000)
    reader.join()
    assert got == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_by_its_name(tmp_path: Path, root: Path) -> None:
    code = "from scenarios.files.atomic import write_text; write_text('/dev/stdout', 'out\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    assert done.stdout == b"out\n"


@pytest.mark.parametrize(
    ("path", "kind", "what"),
    [
        ("absent/out.json", NoFolderError, "its folder does not exist"),
        ("file/out.json", NoFolderError, "part of its path is a file, not a folder"),
        ("folder", TargetIsFolderError, "is a folder"),
        ("folder/", TargetIsFolderError, "is a folder"),
        ("absent/", TargetIsFolderError, "is a folder"),
        ("nul\0.json", OutputError, "not a possible file name"),
        ("n" * 300, OutputError, os.strerror(errno.ENAMETOOLONG)),
    ],
)
def test_what_cannot_be_written_to_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: type[OutputError], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(kind) as caught:
        write_text(path, "x")
    line = str(caught.value)
    assert line.endswith(f": cannot be written: {what}")
    assert "\n" not in line
    assert line.startswith(path.replace("\0", r"\x00")[:60])
    assert names(tmp_path) == ["file", "folder"]


def test_bad_output_is_caught_as_any_bad_input_is() -> None:
    assert issubclass(OutputError, ScenarioError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(NotAllowedError, match="permission denied"):
            write_text(tmp_path / "out", "x")
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    ("call", "number", "kind"),
    [
        ("fsync", errno.ENOSPC, NoSpaceError),
        ("fsync", errno.EDQUOT, NoSpaceError),
        ("replace", errno.EPERM, NotAllowedError),
        ("access", errno.EROFS, NotAllowedError),
        ("replace", errno.EIO, OutputError),
    ],
)
def test_a_disk_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: type[OutputError]
) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(atomic.os, call, fail)
    with pytest.raises(kind):
        write_text(target, "new")
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_file_that_its_owner_made_read_only_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.write_text("keep me")
    # Stands for a mode of 0444, which does not bind root.
    monkeypatch.setattr(atomic.os, "access", lambda path, mode: not (path == str(target) and mode == os.W_OK))
    with pytest.raises(NotAllowedError, match="permission denied"):
        write_text(target, "new")
    assert target.read_text() == "keep me"


# ---- several files as one result ----


def test_a_folder_is_made_with_all_its_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "report", {"a.md": "1", "b.svg": "2"})
    finally:
        os.umask(before)
    assert names(tmp_path) == ["report"]
    assert names(tmp_path / "report") == ["a.md", "b.svg"]
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o750


def test_files_of_a_folder_that_is_there_are_replaced_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("old")
    (tmp_path / "mine").write_text("mine")
    write_folder(tmp_path, {"a.md": "new", "b.svg": "2"})
    assert names(tmp_path) == ["a.md", "b.svg", "mine"]
    assert (tmp_path / "a.md").read_text() == "new"


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_cannot_be_finished_is_as_it_was(
    tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    if there:
        target.mkdir()
        (target / "a.md").write_text("old")
    written = atomic.write_text

    def interrupted(path: str, text: str) -> None:
        if path.endswith("b.svg"):
            raise KeyboardInterrupt
        written(path, text)

    monkeypatch.setattr(atomic, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(target, {"a.md": "new", "b.svg": "2"})
    assert names(tmp_path) == (["report"] if there else [])
    assert not there or (names(target), (target / "a.md").read_text()) == (["a.md"], "old")


def test_a_folder_without_a_parent_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoFolderError, match="cannot be written: its folder does not exist"):
        write_folder(tmp_path / "no" / "report", {"a.md": "1"})
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        write_folder(tmp_path / "file", {"a.md": "1"})
    assert names(tmp_path) == ["file"]


def test_an_interrupt_between_two_renames_brings_the_old_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.md", "c.json"):
        (tmp_path / name).write_text(f"old {name}")
    rename = os.replace

    def interrupted(source: str, target: str) -> None:
        if target == str(tmp_path / "c.json") and not source.endswith(".before"):
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(atomic.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_folder(tmp_path, {"a.md": "new", "b.svg": "new", "c.json": "new"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.md": "old a.md", "c.json": "old c.json"}


def test_a_target_in_a_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    for write in (lambda: write_text("x.json", "1"), lambda: write_folder("report", {"a.md": "1"})):
        with pytest.raises(NoFolderError, match="cannot be written: its folder does not exist"):
            write()
