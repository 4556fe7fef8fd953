"""The newest routing table on disk, so that a gateway serves while its control plane is away.

Written by `gateway.link` when a table is adopted, read once by `gateway.serve`.
"""

import pathlib

import pydantic

from llmgw.fleet.routes import Routes
from llmgw.kit.files import read_regular, write_atomic

_ROUTES = pydantic.TypeAdapter(Routes)


class Damaged(Exception):
    """The file is there and cannot be read; its text says why."""


class RouteStore:
    """One file, `routes.json`, in the gateway's state directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "routes.json"

    def load(self) -> Routes | None:
        """The table that was kept; None when there never was one. Raises Damaged."""
        try:
            return _ROUTES.validate_json(read_regular(self.path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise Damaged(f"{self.path}: {error}") from error

    def keep(self, routes: Routes) -> None:
        """Replace the file. Raises OSError."""
        write_atomic(self.path, _ROUTES.dump_json(routes))
