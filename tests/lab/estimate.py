"""The memory estimator against published logs: `python -m tests.lab estimate [--rows]`.

Rows of vLLM from 0.17 on: KV capacity within 1 % on average, never over by 0.5 GiB. Every row that an
engine refused for want of KV room, for its length, divisibility or number of GPUs must be refused here,
and no row that served may be.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

from llmgw.catalog import kv
from llmgw.catalog.memory import GIB
from llmgw.catalog.vllm_terms import graphs
from tests.lab.command import Outcome
from tests.support.memory_table import Row, rows

MEAN, OVER = 0.01, 0.5
REFUSALS = {
    "no-kv-room": "no room for KV",
    "max-len-too-long": "length",
    "start-refused-divisibility": "divisibility",
    "start-refused-gpu-count": "number of GPUs",
    "oom-load": "weights",
}


def run(argv: Sequence[str]) -> Outcome:
    """Compare every row."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab estimate")
    parser.add_argument("--rows", action="store_true", help="Print each row on stderr.")
    show = parser.parse_args(argv).rows
    table = list(rows())
    capacity = [(row, error) for row in table if (error := over(row)) is not None]
    if show:
        for row, error in sorted(capacity, key=lambda pair: pair[1]):
            print(f"{row.id} {row.model:60} {row.kv:7.2f} GiB {error:+.3f}", file=sys.stderr)
    asked = {kind: [row for row in table if row.outcome == kind] for kind in REFUSALS}
    let_pass = [row.id for refused in asked.values() for row in refused if not row.refused()]
    wronged = [f"{row.id}: {row.refused()}" for row in table if row.outcome == "ok" and row.refused()]
    mean = statistics.fmean(abs(error) / row.kv for row, error in capacity)
    worst = max(error for _, error in capacity)
    return Outcome(
        passed=mean < MEAN and worst < OVER and not let_pass and not wronged,
        took_effect={f"rows refused: {REFUSALS[kind]}": len(found) for kind, found in asked.items()}
        | {"rows with a KV capacity": len(capacity)},
        figures={
            "mean_error_percent": round(100 * mean, 3),
            "mean_error_gib": round(statistics.fmean(abs(error) for _, error in capacity), 3),
            "worst_over_gib": round(worst, 3),
            "worst_under_gib": round(min(error for _, error in capacity), 3),
            "kv_bytes_per_token_exact": f"{sum(exact(row) for row in table)}/{sum(row.per_token > 0 for row in table)}",
            "cuda_graphs_mean_error_gib": round(statistics.fmean(_graphs(table)), 3),
            "served_rows_refused": wronged,
            "refused_rows_let_pass": let_pass,
            "served_rows": sum(row.outcome == "ok" for row in table),
        },
    )


def over(row: Row) -> float | None:
    """GiB by which the estimate of a row of vLLM from 0.17 on exceeds its log; None for any other row."""
    if row.engine != "vllm" or row.version < (0, 17) or not row.kv or row.facts.weights is None:
        return None
    found = row.estimate()
    return None if found is None else found.room / GIB - row.kv


def exact(row: Row) -> bool:
    """Whether KV bytes per token are those of the table."""
    return kv.layout(row.facts, row.profile).token == row.per_token


def _graphs(table: list[Row]) -> list[float]:
    return [
        abs(graphs(row.facts, row.profile) - row.graphs)
        for row in table
        if row.graphs > 0 and over(row) is not None
    ]
