from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unskew.kernel import cache_directory, compiled, kernel, lowest_bit, stamp


def package(folder: Path) -> Path:
    made = folder / "package"
    (made / "inner").mkdir(parents=True)
    (made / "caller.py").write_text("import callee")
    (made / "inner" / "callee.py").write_text("ANSWER = 41")
    return made


def test_a_changed_callee_gives_another_directory(tmp_path: Path) -> None:
    sources = package(tmp_path)
    before = stamp(sources)
    assert stamp(sources) == before
    (sources / "inner" / "callee.py").write_text("ANSWER = 42")
    assert stamp(sources) != before


def test_a_renamed_file_gives_another_directory(tmp_path: Path) -> None:
    sources = package(tmp_path)
    before = stamp(sources)
    (sources / "caller.py").rename(sources / "called.py")
    assert stamp(sources) != before


def test_another_archive_gives_another_directory(tmp_path: Path) -> None:
    archive = tmp_path / "unskew.zip"
    archive.write_bytes(b"one version")
    before = stamp(archive / "unskew")
    archive.write_bytes(b"another version")
    assert stamp(archive / "unskew") != before


def test_what_the_user_set_goes_first_and_is_stamped_too(tmp_path: Path) -> None:
    sources = package(tmp_path)
    chosen = cache_directory(sources, str(tmp_path / "mine"), tmp_path)
    assert chosen == str(tmp_path / "mine" / stamp(sources))


def test_machine_code_is_kept_beside_the_sources(tmp_path: Path) -> None:
    sources = package(tmp_path)
    assert cache_directory(sources, "", tmp_path) == str(sources / "__pycache__" / stamp(sources))


def test_a_place_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    sources = package(tmp_path)
    # A file where a folder is wanted stops root, too, whom permissions would not.
    (sources / "__pycache__").write_text("")
    chosen = cache_directory(sources, "", tmp_path / "temporary")
    assert chosen is not None
    assert Path(chosen).is_relative_to(tmp_path / "temporary")


def test_a_folder_that_others_may_write_is_passed_over(tmp_path: Path) -> None:
    sources = package(tmp_path)
    open_to_all = tmp_path / "mine" / stamp(sources)
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    chosen = cache_directory(sources, str(tmp_path / "mine"), tmp_path)
    assert chosen == str(sources / "__pycache__" / stamp(sources))


def test_no_place_at_all_is_no_cache(tmp_path: Path) -> None:
    sources = package(tmp_path)
    (sources / "__pycache__").write_text("")
    (tmp_path / "temporary").write_text("")
    assert cache_directory(sources, "", tmp_path / "temporary") is None


def test_unskew_works_without_any_cache(tmp_path: Path) -> None:
    script = (
        "import unskew.kernel as k; k._CACHE = None; k._settings.CACHE_DIR = '';"
        "import numpy as np, unskew;"
        "print(unskew.grouping('key', 4).route(np.zeros(2, dtype=np.uint64)).size)"
    )
    # The kernels of the other modules are compiled when those are imported, after the setting.
    script = script.replace("import unskew.kernel as k", _load_kernel_first())
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "2"


def _load_kernel_first() -> str:
    return (
        "import importlib.util as u, sys;"
        "s = u.find_spec('unskew'); f = s.submodule_search_locations[0] + '/kernel.py';"
        "p = u.spec_from_file_location('unskew.kernel', f); k = u.module_from_spec(p);"
        "sys.modules['unskew.kernel'] = k; p.loader.exec_module(k)"
    )


@kernel
def _double(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    for i in range(numbers.size):
        numbers[i] *= 2


@kernel
def _lowest(bits: np.uint64) -> int:
    return lowest_bit(bits)


@compiled
def _squares(number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(number) ** 2


def test_a_kernel_writes_the_arrays_it_is_given() -> None:
    numbers = np.arange(3)
    _double(numbers)
    assert numbers.tolist() == [0, 2, 4]


def test_a_compiled_function_may_make_arrays() -> None:
    assert _squares(4).tolist() == [0, 1, 4, 9]


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 63])
def test_the_lowest_bit_is_found(bit: int) -> None:
    assert _lowest(np.uint64(1 << bit | 1 << 63)) == bit


def test_processes_that_start_together_compile_one_after_the_other(tmp_path: Path) -> None:
    script = (
        "import sys, time, unskew.kernel as k\n"
        "k._CACHE = sys.argv[1]\n"
        "with k.compiling('it'):\n"
        "    begin = time.time(); time.sleep(0.3); print(begin, time.time())\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    (_, end), (begin, _) = sorted(
        tuple(map(float, process.communicate()[0].split())) for process in started
    )
    assert begin >= end
    # The mark is there now: nobody waits for a lock any more.
    assert (tmp_path / "it.compiled").exists()
