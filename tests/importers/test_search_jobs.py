"""Estimates at once give what one after the other gives: in this process, on cores, on a local Dask cluster."""

from __future__ import annotations

import pytest

from tests.answer.search_goals import small
from trainledger.answer.search_exact import exact_of
from trainledger.answer.search_space import grid_of
from trainledger.base.problems import InputError
from trainledger.importers import search_jobs
from trainledger.importers.search_jobs import check_backend, running

NEEDED = {"loky": ("joblib",), "dask": ("joblib", "distributed"), "ray": ("joblib", "ray")}


@pytest.mark.parametrize(("backend", "jobs"), [("loky", 1), ("loky", 2), ("dask", 2), ("ray", 2)])
def test_every_backend_gives_the_same(backend: str, jobs: int) -> None:
    for name in NEEDED[backend] if jobs > 1 else ():
        pytest.importorskip(name)
    goal = small("transformers")
    grid = grid_of(goal)
    given = [(goal, grid.candidate(row)) for row in (0, 1, len(grid) - 1)]
    with running(jobs, backend) as run:
        assert list(run(exact_of, given)) == list(map(exact_of, given))


def test_an_unknown_backend_and_no_jobs_are_refused() -> None:
    with pytest.raises(InputError, match="Did you mean dask"):
        check_backend("dusk", 2)
    with pytest.raises(InputError, match="--jobs"):
        check_backend("loky", 0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_jobs, "installed", lambda name: False)
    check_backend("loky", 1)  # needs none
    with pytest.raises(InputError, match="joblib is not installed"):
        check_backend("loky", 2)
    with pytest.raises(InputError, match="ray is not installed"):
        check_backend("ray", 1)
