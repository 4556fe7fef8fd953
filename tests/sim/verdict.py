"""How an oracle says that something does not hold."""


class Violation(Exception):
    """An invariant does not hold. `code` is its name in the design."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(code, said)
        self.code = code
        self.said = said

    def __str__(self) -> str:
        return f"{self.code}: {self.said}"


def require(holds: bool, code: str, said: str) -> None:
    """Raise Violation unless it `holds`."""
    if not holds:
        raise Violation(code, said)
