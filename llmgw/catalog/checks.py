"""What documents owe each other and their engine: one function a rule, all problems at once.

Called by `load`: `alone` with each document that is new, `together` with all of them; what passes
goes to `resolve`. A rule yields diagnostics and changes nothing; the lists of them stand at the end.

    E206 source        E211 owned flag   E212 power flag  E213 environment  E214 flag twice
    E215 slots         E301-E306         names: see `references`          E307 too many
    E401 products      E402 bounds       E403 no cpu      E404 attention DP E405 gpu on CPU
    E406 Ray over nodes E407 groups cut by nodes
    W502 YAML 1.1      W503 unchecked    W504 moving revision
    W521 tensor parallel over nodes      W522 odd number of GPUs             W523 no headroom
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator

from llmgw.catalog import flags, options, references
from llmgw.catalog.arithmetic import cards, disagreement, shape
from llmgw.catalog.book import Book
from llmgw.catalog.diagnostics import Diagnostic
from llmgw.catalog.documents import AnyProfile, LlamacppDocument, ModelDocument, SglangDocument, VllmDocument
from llmgw.catalog.engine_facts import FACTS
from llmgw.catalog.reading import Written
from llmgw.catalog.sources import parse


def alone(item: Written) -> Iterator[Diagnostic]:
    """Every problem of one document that no other document has a part in.

    Of one that is wrong already, what the rest of it can be asked: all mistakes are said at once.
    """
    document = item.document or item.rest
    if isinstance(document, ModelDocument):
        for rule, needs in MODEL_RULES:
            if needs.isdisjoint(item.wrong):
                yield from rule(item, document)
    elif document is not None:
        for profile_rule, needs in PROFILE_RULES if document.nodes == 1 else GANG_RULES:
            if needs.isdisjoint(item.wrong):
                yield from profile_rule(item, document)


def together(everything: Book) -> Iterator[Diagnostic]:
    """Every problem that documents have with each other; E307 ends them where they do not end."""
    found = itertools.chain.from_iterable(rule(everything) for rule in RULES)
    yield from itertools.islice(found, references.MAX_FOUND)
    if (last := next(found, None)) is not None:
        said = f"this catalog has more than {references.MAX_FOUND} wrong names: the rest was not looked for"
        yield dataclasses.replace(last, code="E307", said=said, help="mend these first", related=())


def sources(item: Written, model: ModelDocument) -> Iterator[Diagnostic]:
    """E206, W504: sources that cannot be read, and revisions that may move."""
    try:
        source = parse(model.source, model.sha256)
    except ValueError as error:
        yield item.problem("E206", str(error), "source")
        return
    revision = source.canonical.partition("@")[2].partition(":")[0]
    if source.scheme == "hf" and not re.fullmatch("[0-9a-f]{7,40}", revision):
        said = f"revision `{revision}` may move: nodes that fetch at different times would differ"
        yield item.problem("W504", said, "source", help="write a commit")


def products(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E401: nodes × gpus_per_node against the parallel degrees."""
    found = disagreement(profile)
    if found:
        field = next((name for name in _DEGREES if name in profile.model_fields_set), "name")
        yield item.problem("E401", found.said, field, key=True, help=found.help)


_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "gpus_per_node", "nodes")


def bounds(item: Written, model: ModelDocument) -> Iterator[Diagnostic]:
    """E402: more replicas at least than at most."""
    scaling = model.scaling
    if "max" in scaling.model_fields_set and scaling.min > scaling.max:
        said = f"scaling.min {scaling.min} is more than scaling.max {scaling.max}"
        yield item.problem("E402", said, "scaling", "min", help=f"set max: {scaling.min}")


def devices(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E403, E405: on CPU, `cpu` says what is booked and `gpu` has no meaning."""
    if cards(profile):
        return
    if profile.cpu is None:
        said = "gpus_per_node is 0, so `cpu` must say what one shard books on its node"
        yield item.problem(
            "E403", said, "gpus_per_node", key=True, help="write cpu: {cores: 4, memory: 8GiB}"
        )
    if "gpu" in profile.model_fields_set:
        yield item.problem(
            "E405", "`gpu` has no meaning where gpus_per_node is 0", "gpu", key=True, help="remove it"
        )


def attention_parallel(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E404: SGLang splits its tensor parallel ranks among the data parallel ones."""
    if not isinstance(profile, SglangDocument):
        return
    tensor = shape(profile).tensor_parallel
    if tensor % profile.data_parallel:
        said = f"data_parallel {profile.data_parallel} does not divide tensor_parallel {tensor}"
        yield item.problem(
            "E404", said, "data_parallel", key=True, help="SGLang needs a divisor of tensor_parallel"
        )


def whole_nodes(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E407: nodes share the groups of a degree evenly, or a group has whole nodes."""
    degree = FACTS[profile.engine].apart
    if not degree:
        return
    groups, nodes = int(getattr(profile, degree)), profile.nodes
    if groups % nodes and nodes % groups:
        said = f"{degree} {groups} over {nodes} nodes: neither number divides the other"
        needs = f"{profile.engine} needs a {degree} that divides nodes or is a multiple of them"
        yield item.problem("E407", said, degree, key=True, help=needs)


def joined(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E406: llmgw starts no Ray cluster; several nodes are joined by vLLM itself."""
    if isinstance(profile, VllmDocument) and profile.distributed != "mp":
        said = f"distributed: {profile.distributed} cannot join {profile.nodes} nodes: llmgw starts no Ray cluster"
        yield item.problem("E406", said, "distributed", key=True, help="set distributed: mp")


def tensor_over_nodes(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """W521: engines permit tensor parallelism over nodes, at the pace of their network."""
    found = shape(profile)
    ranks, gpus = found.tensor_parallel, found.gpus_per_node
    if not gpus or gpus % ranks == 0 or disagreement(profile):
        return
    said = (
        f"tensor_parallel {ranks} does not stay in a node of {gpus}: every layer would wait for the network"
    )
    inside = f"tensor_parallel: {gpus} with pipeline_parallel: {found.pipeline_parallel * ranks // gpus}"
    kept = f"{inside} stays inside" if ranks % gpus == 0 else "a divisor of gpus_per_node stays inside"
    yield item.problem("W521", said, _written(profile, "tensor_parallel"), key=True, help=kept)


def odd_sizes(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """W522: sizes that divide one another fill nodes whatever comes when; others leave gaps."""
    gpus = cards(profile)
    if gpus & (gpus - 1) == 0:
        return
    less = 1 << (gpus.bit_length() - 1)
    said = f"{gpus} GPUs on a node leave gaps beside replicas of 1, 2, 4 or 8"
    wanted = f"use {less} or {2 * less}, unless nodes have just {gpus}"
    yield item.problem("W522", said, _written(profile, "gpus_per_node"), key=True, help=wanted)


def _written(profile: AnyProfile, field: str) -> str:
    """`field`, or the first degree that it follows from where it was left out."""
    return next((name for name in (field, *_DEGREES) if name in profile.model_fields_set), "name")


_HEADROOM = 0.92
"""Of 80 GB the rest is what CUDA graphs and warm-up took beyond what vLLM had measured; at 0.95 it was too little."""


def headroom(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """W523: vLLM takes more than its share after it has measured."""
    if not isinstance(profile, VllmDocument) or profile.gpu_memory_utilization <= _HEADROOM:
        return
    pinned = options.last(profile.args.items(), profile.engine, "kv-cache-memory-bytes")
    if pinned is None and cards(profile):
        said = f"gpu_memory_utilization {profile.gpu_memory_utilization:g} may leave too little for graphs and warm-up"
        wanted = f"set gpu_memory_utilization: {_HEADROOM} at most"
        yield item.problem("W523", said, "gpu_memory_utilization", key=True, help=wanted)


def arguments(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E211, E212: flags that llmgw writes itself, and flags that need `allow_unsafe_args`."""
    for flag in profile.args:
        owned, power = flags.owned(flag, profile.engine), flags.powerful(flag, profile.engine)
        if owned:
            yield _owned_flag(item, flag, owned, FACTS[profile.engine].owned[owned])
        elif power and not profile.allow_unsafe_args:
            said = f"{_meaning(flag, power)} runs code or opens what nobody sees here"
            yield item.problem(
                "E212", said, "args", flag, key=True, help="set allow_unsafe_args: true if you mean it"
            )


def _owned_flag(item: Written, flag: str, owned: str, reason: str) -> Diagnostic:
    meant = _meaning(flag, owned)
    if reason.isidentifier():
        return item.problem(
            "E211", f"{meant} is written by llmgw", "args", flag, key=True, help=f"`{reason}` stands for it"
        )
    return item.problem("E211", f"{meant} is llmgw's: {reason}", "args", flag, key=True, help="remove it")


def _meaning(flag: str, meant: str) -> str:
    return f"flag `{flag}`" if flag == meant else f"flag `{flag}` (it means `{meant}`)"


def slots(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E215: llama.cpp's `parallel` multiplies the context, so it must be a number."""
    value = profile.args.get("parallel", 1)
    if isinstance(profile, LlamacppDocument) and (type(value) is not int or value < 1):
        said = "`parallel` must be a whole number from 1: each request gets max_model_len for itself"
        yield item.problem("E215", said, "args", "parallel")


def flag_twice(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E214: one flag in two spellings."""
    meant = [flags.whole(flag, profile.engine) for flag in profile.args]
    if len(set(meant)) == len(meant):
        return
    counted = Counter(meant)
    for flag, name in zip(profile.args, meant, strict=True):
        if counted[name] > 1:
            said = f"flag `{name}` is written in two spellings"
            yield item.problem("E214", said, "args", flag, key=True, help="keep one of them")


def environment(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """E213: variables that llmgw sets, that load code, or that hold secrets."""
    for variable, value in profile.env.items():
        reason = flags.reserved(variable, value)
        if reason:
            said = f"variable `{variable}` cannot be set here: {reason}"
            yield item.problem("E213", said, "env", variable, key=True, help="remove it")


_ONCE_BOOLEAN = frozenset({"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"})
_MAY_BE_BOOLEAN = "`{}` is text in YAML 1.2, not true or false"


def once_boolean(item: Written, profile: AnyProfile) -> Iterator[Diagnostic]:
    """W502: words that YAML 1.1 read as true or false."""
    for flag, value in profile.args.items():
        if isinstance(value, str) and value in _ONCE_BOOLEAN and _unquoted(item, flag):
            said = _MAY_BE_BOOLEAN.format(value)
            yield item.problem(
                "W502", said, "args", flag, help=f'write true or false, or quote it: "{value}"'
            )


def _unquoted(item: Written, flag: str) -> bool:
    spot = item.tree.spot(("args", flag))
    return spot.line[spot.place.column - 1 : spot.place.column] not in ("'", '"')


_ModelRule = Callable[[Written, ModelDocument], Iterator[Diagnostic]]
_ProfileRule = Callable[[Written, AnyProfile], Iterator[Diagnostic]]
_SHAPE = frozenset(_DEGREES)
MODEL_RULES: tuple[tuple[_ModelRule, frozenset[str]], ...] = (
    (sources, frozenset({"source", "sha256"})),
    (bounds, frozenset({"scaling"})),
    (references.listed_twice, frozenset({"profiles", "aliases", "fallbacks"})),
)
PROFILE_RULES: tuple[tuple[_ProfileRule, frozenset[str]], ...] = (
    (products, _SHAPE),
    (devices, _SHAPE | {"cpu", "gpu"}),
    (attention_parallel, _SHAPE),
    (odd_sizes, _SHAPE),
    (headroom, _SHAPE | {"gpu_memory_utilization", "args"}),
    (arguments, frozenset({"args", "allow_unsafe_args"})),
    (slots, frozenset({"args"})),
    (flag_twice, frozenset({"args"})),
    (environment, frozenset({"env"})),
    (once_boolean, frozenset({"args"})),
)
"""Each with the fields that it needs."""
GANG_RULES: tuple[tuple[_ProfileRule, frozenset[str]], ...] = (
    *PROFILE_RULES,
    (whole_nodes, _SHAPE),
    (tensor_over_nodes, _SHAPE),
    (joined, frozenset({"nodes", "distributed"})),
)
"""Those of a profile over several nodes."""
RULES: tuple[Callable[[Book], Iterator[Diagnostic]], ...] = (
    references.unknown_names,
    references.name_twice,
    references.alias_twice,
    references.fallback_ring,
)
