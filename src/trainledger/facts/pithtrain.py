"""PithTrain: what of its models, its pipeline and its loss is known.

Source: mlc-ai/pith-train at 287070fbcf6c, pithtrain/{models,dualpipe,modules,operators}.
"""

from __future__ import annotations

from trainledger.base.sources import Source

NAME = "pithtrain"
MODELS = ("qwen3_moe", "deepseek_v2")
SCHEDULES = ("dualpipev",)
FLOW = Source(
    "PithTrain", "pithtrain/dualpipe/dualpipev.py, _send_forward, _free_tensors, run_post_backward", "287070f"
)
