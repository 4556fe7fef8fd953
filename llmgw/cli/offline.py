"""A plan without a control plane: of a snapshot of the fleet, by the same functions. Used by `plan --fleet`.

The same catalog and the same fleet give the plan that the control plane would give; its chance is seeded.
"""

import dataclasses
import pathlib

from llmgw.catalog.model import Catalog
from llmgw.cli.revisions import base_catalog
from llmgw.control import snapshot
from llmgw.control.adoption import command_line
from llmgw.errors import Failed
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.kit.units import show_seconds
from llmgw.planning.asking import Asked, answer
from llmgw.planning.judging import judged
from llmgw.planning.plan import Plan
from llmgw.transport.sockets import reason

OLD = 900.0
"""Seconds after which a snapshot is warned about."""


def plan_offline(path: pathlib.Path, new: Catalog, base: dict[str, str] | None, asked: Asked) -> Plan:
    """The plan of `new` against the snapshot at `path`. Raises Failed."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot read {path}: {reason(error)}", help="llmgw fleet export") from error
    except UnicodeDecodeError as error:
        raise Failed(f"cannot read {path}: it is no text", help="llmgw fleet export") from error
    found = snapshot.read(text, str(path))
    given = found.given
    desired = dataclasses.replace(given.desired, catalog=new)
    before = base_catalog(base) if base else None
    plan = answer(given, desired, lambda: seeded(0), command_line, asked, before)
    age = (SystemClock().wall() - found.at).total_seconds()
    warnings = (f"the fleet is that of {show_seconds(age)} ago",) if age > OLD else ()
    observed = f"{plan.observed}, seen {show_seconds(max(0.0, age))} ago ({path})"
    fired = judged(plan, given, desired, found.limits, seeded(0), asked)
    return dataclasses.replace(plan, observed=observed, warnings=(*plan.warnings, *warnings), guards=fired)
