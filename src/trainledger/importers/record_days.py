"""A record that names no release of its framework, with the one that its source's words tell: a commit, or a day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainledger.facts.record_documents import DATED
from trainledger.facts.torchtitan import NAME
from trainledger.facts.torchtitan_days import DOCUMENTS, dated, known
from trainledger.facts.torchtune import NAME as TORCHTUNE

FRAMEWORKS = (NAME, TORCHTUNE)  # whose code is known by the day
_COMMIT = re.compile(NAME + r" ([0-9a-f]{6,40})(?![0-9a-z])")
_MONTH = re.compile(r"(?<![\d-])(20\d\d-\d\d)(?![\d-])")


def with_release(plan: Mapping[str, Any], source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plan, with torchtitan's or torchtune's release as the source's path or note names it, or with the releases
    that were the newest when its document was written; a plan that names one, or that another framework runs, as it is.

    The code of another day holds other bytes, and a record's run is of the day on which it was printed.
    """
    stack = plan.get("stack")
    versions = stack.get("versions", {}) if isinstance(stack, dict) else None
    if not isinstance(stack, dict) or not isinstance(versions, dict):
        return plan
    framework = stack.get("framework")
    written = next((one.releases for one in DATED if one.is_of(framework, versions, source)), None)
    if written is not None:
        return {**plan, "stack": {**stack, "versions": {**written, **versions}}}
    version = named_in(source) if framework in FRAMEWORKS and framework not in versions else ""
    return {**plan, "stack": {**stack, "versions": {**versions, framework: version}}} if version else plan


def named_in(source: Mapping[str, Any]) -> str:
    """The commit or the day that a source names, or on which its document was written; of a month its first day; empty
    where there is none."""
    words = " ".join(str(source.get(key) or "") for key in ("path", "note"))
    commit = _COMMIT.search(words)
    if commit and known(commit.group(1)):
        return commit.group(1)
    written = (one.day for one in DOCUMENTS if (one.repo, one.path) == (source.get("repo"), source.get("path")))
    month = _MONTH.search(words)
    return dated(words) or next(written, "") or (f"{month.group(1)}-01" if month else "")
