"""The name somebody probably meant. Called by `reading` for fields and by `checks` for references."""

from collections.abc import Iterable


def closest(word: str, names: Iterable[str]) -> str | None:
    """The nearest of `names` by edit distance, none if all are too far to be a slip of the fingers."""
    limit = max(1, min(3, len(word) // 3))
    near = ((distance(word, name, limit), name) for name in names if abs(len(name) - len(word)) <= limit)
    best = min((found for found in near if found[0] <= limit), default=None)
    return best[1] if best else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A help text that offers the nearest name, or nothing."""
    found = closest(word, names)
    return f"did you mean `{found}`?" if found else ""


def distance(one: str, other: str, limit: int) -> int:
    """Edits from `one` to `other`, a swap of neighbours counting once; gives up above `limit`."""
    one, other = one.casefold(), other.casefold()
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, previous = row, before
        row = [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]
