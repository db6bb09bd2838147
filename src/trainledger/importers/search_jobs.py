"""Many exact estimates at once, through joblib: on this machine's cores, or on a cluster by Dask or Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from trainledger.answer.search_answer import Run
from trainledger.answer.search_exact import Exact, Job
from trainledger.base.problems import InputError, Problem, nearest

BACKENDS = ("loky", "dask", "ray")
EXTRA = "pip install 'trainledger[search]'"


def check_backend(backend: str, jobs: int) -> None:
    """Raise InputError for a backend that there is none of, or whose package is missing."""
    if backend not in BACKENDS:
        near = nearest(backend, BACKENDS)
        fix = f"Did you mean {near}?" if near else ""
        raise InputError([Problem("--backend", f"found {backend!r}", f"{', '.join(BACKENDS)} are known", fix)])
    if jobs < 1:
        raise InputError([Problem("--jobs", f"found {jobs}", "1 or more is needed")])
    needed = {"loky": "joblib", "dask": "distributed", "ray": "ray"}[backend]
    if (jobs > 1 or backend != BACKENDS[0]) and not (installed("joblib") and installed(needed)):
        option = "--jobs" if backend == BACKENDS[0] else "--backend"
        raise InputError([Problem(option, f"{needed} is not installed", "it runs estimates at once", EXTRA)])


def installed(name: str) -> bool:
    """Whether a package can be imported."""
    return find_spec(name) is not None


@contextmanager
def running(jobs: int = 1, backend: str = BACKENDS[0], cluster: str = "") -> Iterator[Run]:
    """What maps estimates: in this process with one job, else through joblib. `cluster`: the address of a Dask
    scheduler or a Ray cluster; left out, one is started here. Raises InputError as `check_backend` does."""
    check_backend(backend, jobs)
    if jobs == 1 and backend == BACKENDS[0]:
        yield map
        return
    import joblib

    with _cluster(backend, jobs, cluster), joblib.parallel_config(backend=backend, n_jobs=jobs):

        def run(estimate: Callable[[Job], Exact], given: Iterable[Job]) -> Iterable[Exact]:
            found: Iterable[Exact] = joblib.Parallel()(joblib.delayed(estimate)(one) for one in given)
            return found

        yield run


@contextmanager
def _cluster(backend: str, jobs: int, address: str) -> Iterator[Any]:
    if backend == "dask":
        from distributed import Client

        here: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with Client(address) if address else Client(**here) as client:
            yield client
    elif backend == "ray":
        import ray
        from ray.util.joblib import register_ray

        register_ray()
        with ray.init(address=address or None, num_cpus=None if address else jobs) as context:
            yield context
    else:
        yield None
