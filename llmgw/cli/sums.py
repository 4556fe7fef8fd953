"""The answer of `llmgw fit` as lines and as JSON. Pure: the sums that people read add up as they are shown."""

from collections.abc import Iterator

from llmgw.catalog.fitting import Fit
from llmgw.catalog.memory import Estimate
from llmgw.kit.sums import down, memory_unit, shown, tenths
from llmgw.kit.text import safe

_SHOWN_OTHERS = 3


def fit_lines(fit: Fit) -> Iterator[str]:
    """The sum, the verdict, and what would do."""
    for finding in fit.findings:
        level = "warning" if finding.warning else "error"
        yield f"{level}[{finding.code}]: {safe(finding.said)}"
        if finding.help:
            yield f"  help: {safe(finding.help)}"
    if fit.estimate is None:
        yield "size unknown: the files do not say how large the weights or the layers are"
        return
    yield from _sum(fit, fit.estimate)
    yield _verdict(fit, fit.estimate)
    way_out = _way_out(fit, fit.estimate)
    if way_out:
        yield way_out
    for note in fit.estimate.notes:
        yield f"note: {note}"


def _sum(fit: Fit, found: Estimate) -> Iterator[str]:
    """What is exact first, then what is estimated, then what there is."""
    where = "per card" if fit.profile.gpus_per_node else "per shard"
    exact, guessed = (
        [term for term in found.terms if term.basis == basis] for basis in ("exact", "estimate")
    )
    names = [*(term.name for term in exact), _what(fit, found), *(term.name for term in guessed)]
    sizes = [*(term.size for term in exact), found.sequence, *(term.size for term in guessed)]
    unit, name = memory_unit(sum(sizes))
    rounded = tenths(sizes, unit)
    parts = [f"{shown(size)} {what}" for size, what in zip(rounded, names, strict=True)]
    first = len(exact) + 1
    parts[first] = f"(estimated) {parts[first]}"
    yield f"{where}: {' + '.join(parts)} = {shown(sum(rounded))} {name}"
    budget = f"of {shown(down(found.budget, unit))} {name}"
    if found.share != 1.0:
        budget += (
            f" ({found.card / unit:.2f} x {found.share:.2f}, which {fit.profile.engine} takes in any case)"
        )
    yield " " * (len(where) + 2) + budget


def _what(fit: Fit, found: Estimate) -> str:
    slots = dict(fit.profile.args).get("parallel", 1) if fit.profile.engine == "llamacpp" else 1
    return f"for {slots if slots != 1 else 'one'} {found.length:,}-token sequence{'' if slots == 1 else 's'}"


def _verdict(fit: Fit, found: Estimate) -> str:
    if fit.refused:
        return f"does not run: {fit.profile.engine} would refuse it."
    unit, name = memory_unit(sum(term.size for term in found.terms) + found.sequence)
    if not found.fits:
        needed = sum(tenths([*(term.size for term in found.terms), found.sequence], unit))
        short = max(1, needed - down(found.budget, unit))
        return f"does not fit: {shown(short)} {name} short."
    spare = shown(down(found.room - found.sequence, unit))
    at_a_time = (
        f"; KV for {found.concurrency:.1f} x {found.length:,} tokens"
        if fit.profile.engine != "llamacpp"
        else ""
    )
    return f"fits: {spare} {name} to spare{at_a_time}."


def _way_out(fit: Fit, found: Estimate) -> str:
    """`fits with --max-model-len N, or --profile P (then 14.5 x 32,768)`, where there is a way."""
    if fit.fits or (fit.refused and not fit.others):
        return ""
    ways = [f"--max-model-len {found.longest}"] if not fit.refused and found.longest else []
    ways += [
        f"--profile {safe(other.name)} (then {other.concurrency:.1f} x {found.length:,})"
        for other in fit.others[:_SHOWN_OTHERS]
    ]
    return f"fits with {', or '.join(ways)}" if ways else "no other profile of this catalog is large enough"


def fit_document(fit: Fit, source: str) -> dict[str, object]:
    """The answer for scripts. Sizes in bytes."""
    found = fit.estimate
    return {
        "source": source,
        "profile": fit.profile.name,
        "engine": fit.profile.engine,
        "fits": fit.fits,
        "findings": [
            {"code": each.code, "field": each.field, "said": each.said, "help": each.help}
            for each in fit.findings
        ],
        "memory": _memory(found) if found is not None else None,
        "fits_with": {
            "max_model_len": found.longest
            if found is not None and not fit.fits and not fit.refused
            else None,
            "profiles": [
                {"name": other.name, "concurrency": round(other.concurrency, 2)} for other in fit.others
            ],
        },
    }


def _memory(found: Estimate) -> dict[str, object]:
    return {
        "card": found.card,
        "share": found.share,
        "budget": found.budget,
        "terms": [{"name": term.name, "size": term.size, "basis": term.basis} for term in found.terms],
        "room": found.room,
        "token": found.token,
        "sequence": found.sequence,
        "length": found.length,
        "longest": found.longest,
        "short": max(0, found.short),
        "concurrency": round(found.concurrency, 2),
        "notes": list(found.notes),
    }
