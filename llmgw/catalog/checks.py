"""What documents owe each other: one function a rule, all problems at once.

Called by `load` with everything that was read; what passes goes to `resolve`. A rule yields
diagnostics and changes nothing; `RULES` is the list of them.

    E206 source        E211 owned flag   E212 power flag  E213 environment  E214 flag twice
    E215 slots
    E301 profile       E302 fallback     E303 name twice  E304 alias twice  E305 listed twice
    E306 fallback ring E401 products     E402 bounds      E403 no cpu       E404 attention DP
    E405 gpu on CPU    W502 YAML 1.1     W503 unchecked   W504 moving revision
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from llmgw.catalog import flags
from llmgw.catalog.arithmetic import disagreement, shape
from llmgw.catalog.diagnostics import Diagnostic, Related
from llmgw.catalog.documents import AnyProfile, LlamacppDocument, ModelDocument, SglangDocument
from llmgw.catalog.engine_facts import FACTS
from llmgw.catalog.reading import Written
from llmgw.catalog.sources import parse
from llmgw.catalog.suggest import did_you_mean
from llmgw.kit.text import count

MAX_SUGGESTIONS = 30
"""Unknown names per load that are compared with all known ones: the work is their product."""


@dataclasses.dataclass(frozen=True, slots=True)
class Book:
    """Every document, and who has which name (where two have it, the first by file name).

    `unread` are the files whose names nobody knows: references may point there.
    """

    written: Sequence[Written]
    models: Mapping[str, Written]
    profiles: Mapping[str, Written]
    aliases: Mapping[str, tuple[Written, int]]
    unread: Sequence[Written]

    def model_documents(self) -> Iterator[tuple[Written, ModelDocument]]:
        for item in self.written:
            if isinstance(item.document, ModelDocument):
                yield item, item.document

    def profile_documents(self) -> Iterator[tuple[Written, AnyProfile]]:
        for item in self.written:
            if item.document is not None and not isinstance(item.document, ModelDocument):
                yield item, item.document

    def model_called(self, name: str) -> str | None:
        """The model that a name or an alias stands for."""
        if name in self.models:
            return name
        return self.aliases[name][0].name if name in self.aliases else None


def book(written: Sequence[Written]) -> Book:
    """Index `written`, which is in the order of file names."""
    models: dict[str, Written] = {}
    profiles: dict[str, Written] = {}
    aliases: dict[str, tuple[Written, int]] = {}
    for item in written:
        if item.kind and item.name:
            (models if item.kind == "model" else profiles).setdefault(item.name, item)
        for index, alias in enumerate(_aliases(item)):
            aliases.setdefault(alias, (item, index))
    unread = [item for item in written if not (item.kind and item.name) and not _empty(item)]
    return Book(written, models, profiles, aliases, unread)


def _aliases(item: Written) -> Sequence[str]:
    """The aliases of a model, read even from a document that is wrong elsewhere."""
    data = item.tree.value
    if item.kind != "model" or not isinstance(data, dict):
        return ()
    found = data.get("aliases")
    return [alias for alias in found if isinstance(alias, str)] if isinstance(found, list) else ()


def _empty(item: Written) -> bool:
    return item.tree.parsed and item.tree.value is None


def check(everything: Book) -> list[Diagnostic]:
    """Every problem that any rule finds."""
    return [found for rule in RULES for found in rule(everything)]


def unknown_names(everything: Book) -> Iterator[Diagnostic]:
    """E301, E302: profiles and fallbacks that nobody has. W503 where the file that may have them is broken."""
    unknown = list(_unknown_names(everything))
    if everything.unread and unknown:
        said = f"{count(len(unknown), 'reference')} not checked: the names in this file could not be read"
        yield everything.unread[0].problem("W503", said, help="mend this file first")
        return
    targets = {"profiles": list(everything.profiles), "fallbacks": [*everything.models, *everything.aliases]}
    for number, (item, field, index, name) in enumerate(unknown):
        hint = did_you_mean(name, targets[field]) if number < MAX_SUGGESTIONS else ""
        code, noun = ("E301", "profile") if field == "profiles" else ("E302", "model or alias")
        yield item.problem(code, f"no {noun} is called `{name}`", field, index, help=hint)


def _unknown_names(everything: Book) -> Iterator[tuple[Written, str, int, str]]:
    for item, model in everything.model_documents():
        for index, name in enumerate(model.profiles):
            if name not in everything.profiles:
                yield item, "profiles", index, name
        for index, name in enumerate(model.fallbacks):
            if everything.model_called(name) is None:
                yield item, "fallbacks", index, name


def name_twice(everything: Book) -> Iterator[Diagnostic]:
    """E303: two models or two profiles of one name."""
    for item in everything.written:
        owners = everything.models if item.kind == "model" else everything.profiles
        first = owners.get(item.name)
        if item.kind and first is not None and first is not item:
            earlier = Related(first.tree.spot(("name",)), "first here")
            said = f"two {item.kind}s are called `{item.name}`"
            yield item.problem("E303", said, "name", help="rename one of them", related=(earlier,))


def alias_twice(everything: Book) -> Iterator[Diagnostic]:
    """E304: an alias that is another alias or a model's name."""
    for item in everything.written:
        for index, alias in enumerate(_aliases(item)):
            owner, at = everything.aliases[alias]
            if alias in everything.models:
                model = everything.models[alias]
                yield _clash(item, index, f"alias `{alias}` is the name of a model", model, ("name",))
            elif owner is not item:
                yield _clash(item, index, f"two models have the alias `{alias}`", owner, ("aliases", at))


def _clash(item: Written, index: int, said: str, owner: Written, path: tuple[str | int, ...]) -> Diagnostic:
    earlier = Related(owner.tree.spot(path), "here too")
    return item.problem("E304", said, "aliases", index, help="give it to one of them", related=(earlier,))


def listed_twice(everything: Book) -> Iterator[Diagnostic]:
    """E305: a name that stands twice in one list."""
    for item, model in everything.model_documents():
        for field in ("profiles", "aliases", "fallbacks"):
            names: tuple[str, ...] = getattr(model, field)
            if len(set(names)) == len(names):
                continue
            for index, name in enumerate(names):
                if name in names[:index]:
                    yield item.problem(
                        "E305", f"`{name}` stands twice in `{field}`", field, index, help="remove one"
                    )


def fallback_ring(everything: Book) -> Iterator[Diagnostic]:
    """E306: fallbacks that lead back to where they began, through aliases too."""
    done: set[str] = set()
    for start in everything.models:
        if start not in done:
            yield from _rings_from(start, everything, done)


def _rings_from(start: str, everything: Book, done: set[str]) -> Iterator[Diagnostic]:
    """Depth first without recursion; each edge back to the path under way closes one ring."""
    path: dict[str, Iterator[tuple[int, str]]] = {start: _fallbacks(start, everything)}
    while path:
        last = next(reversed(path))
        step = next(path[last], None)
        if step is None:
            done.add(last)
            del path[last]
        elif step[1] in path:
            names = list(path)
            yield _ring(names[names.index(step[1]) :], step[0], everything)
        elif step[1] not in done:
            path[step[1]] = _fallbacks(step[1], everything)


def _fallbacks(name: str, everything: Book) -> Iterator[tuple[int, str]]:
    document = everything.models[name].document
    if isinstance(document, ModelDocument):
        for index, fallback in enumerate(document.fallbacks):
            target = everything.model_called(fallback)
            if target in everything.models:
                yield index, str(target)


def _ring(ring: list[str], index: int, everything: Book) -> Diagnostic:
    shown = ring if len(ring) <= 8 else [*ring[:7], f"… {len(ring) - 7} more"]
    said = f"fallbacks go round in a ring: {' → '.join([*shown, ring[0]])}"
    return everything.models[ring[-1]].problem(
        "E306", said, "fallbacks", index, help="remove one of these fallbacks"
    )


def sources(everything: Book) -> Iterator[Diagnostic]:
    """E206, W504: sources that cannot be read, and revisions that may move."""
    for item, model in everything.model_documents():
        try:
            source = parse(model.source, model.sha256)
        except ValueError as error:
            yield item.problem("E206", str(error), "source")
            continue
        revision = source.canonical.partition("@")[2].partition(":")[0]
        if source.scheme == "hf" and not re.fullmatch("[0-9a-f]{7,40}", revision):
            said = f"revision `{revision}` may move: nodes that fetch at different times would differ"
            yield item.problem("W504", said, "source", help="write a commit")


def products(everything: Book) -> Iterator[Diagnostic]:
    """E401: nodes × gpus_per_node against the parallel degrees."""
    for item, profile in everything.profile_documents():
        found = disagreement(profile)
        if found:
            field = next((name for name in _DEGREES if name in profile.model_fields_set), "name")
            yield item.problem("E401", found.said, field, key=True, help=found.help)


_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "gpus_per_node", "nodes")


def bounds(everything: Book) -> Iterator[Diagnostic]:
    """E402: more replicas at least than at most."""
    for item, model in everything.model_documents():
        scaling = model.scaling
        if "max" in scaling.model_fields_set and scaling.min > scaling.max:
            said = f"scaling.min {scaling.min} is more than scaling.max {scaling.max}"
            yield item.problem("E402", said, "scaling", "min", help=f"set max: {scaling.min}")


def devices(everything: Book) -> Iterator[Diagnostic]:
    """E403, E405: on CPU, `cpu` says what is booked and `gpu` has no meaning."""
    for item, profile in everything.profile_documents():
        if shape(profile).gpus_per_node:
            continue
        if profile.cpu is None:
            said = "gpus_per_node is 0, so `cpu` must say what one shard books on its node"
            yield item.problem(
                "E403", said, "gpus_per_node", key=True, help="write cpu: {cores: 4, memory: 8GiB}"
            )
        if "gpu" in profile.model_fields_set:
            yield item.problem(
                "E405", "`gpu` has no meaning where gpus_per_node is 0", "gpu", key=True, help="remove it"
            )


def attention_parallel(everything: Book) -> Iterator[Diagnostic]:
    """E404: SGLang splits its tensor parallel ranks among the data parallel ones."""
    for item, profile in everything.profile_documents():
        tensor = shape(profile).tensor_parallel
        if isinstance(profile, SglangDocument) and tensor % profile.data_parallel:
            said = f"data_parallel {profile.data_parallel} does not divide tensor_parallel {tensor}"
            yield item.problem(
                "E404", said, "data_parallel", key=True, help="SGLang needs a divisor of tensor_parallel"
            )


def arguments(everything: Book) -> Iterator[Diagnostic]:
    """E211, E212: flags that llmgw writes itself, and flags that need `allow_unsafe_args`."""
    for item, profile in everything.profile_documents():
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


def slots(everything: Book) -> Iterator[Diagnostic]:
    """E215: llama.cpp's `parallel` multiplies the context, so it must be a number."""
    for item, profile in everything.profile_documents():
        value = profile.args.get("parallel", 1)
        if isinstance(profile, LlamacppDocument) and (type(value) is not int or value < 1):
            said = "`parallel` must be a whole number from 1: each request gets max_model_len for itself"
            yield item.problem("E215", said, "args", "parallel")


def flag_twice(everything: Book) -> Iterator[Diagnostic]:
    """E214: one flag in two spellings."""
    for item, profile in everything.profile_documents():
        counted = Counter(map(flags.canonical, profile.args))
        for flag in profile.args:
            if counted[flags.canonical(flag)] > 1:
                said = f"flag `{flags.canonical(flag)}` is written in two spellings"
                yield item.problem("E214", said, "args", flag, key=True, help="keep one of them")


def environment(everything: Book) -> Iterator[Diagnostic]:
    """E213: variables that llmgw sets, that load code, or that hold secrets."""
    for item, profile in everything.profile_documents():
        for variable in profile.env:
            reason = flags.reserved(variable)
            if reason:
                said = f"variable `{variable}` cannot be set here: {reason}"
                yield item.problem("E213", said, "env", variable, key=True, help="remove it")


_ONCE_BOOLEAN = frozenset({"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"})
_MAY_BE_BOOLEAN = "`{}` is text in YAML 1.2, not true or false"


def once_boolean(everything: Book) -> Iterator[Diagnostic]:
    """W502: words that YAML 1.1 read as true or false."""
    for item, profile in everything.profile_documents():
        for flag, value in profile.args.items():
            if isinstance(value, str) and value in _ONCE_BOOLEAN and _unquoted(item, flag):
                said = _MAY_BE_BOOLEAN.format(value)
                yield item.problem(
                    "W502", said, "args", flag, help=f'write true or false, or quote it: "{value}"'
                )


def _unquoted(item: Written, flag: str) -> bool:
    spot = item.tree.spot(("args", flag))
    return spot.line[spot.place.column - 1 : spot.place.column] not in ("'", '"')


RULES: tuple[Callable[[Book], Iterator[Diagnostic]], ...] = (
    unknown_names,
    name_twice,
    alias_twice,
    listed_twice,
    fallback_ring,
    sources,
    products,
    bounds,
    devices,
    attention_parallel,
    arguments,
    slots,
    flag_twice,
    environment,
    once_boolean,
)
