"""The route of `llmgw fleet export`: the fleet as the control plane sees it, whole, as one document.

Passed to `Api(..., more=...)` by `serve`.
"""

from llmgw.control import snapshot
from llmgw.control.adoption import Adoption
from llmgw.control.api import Routes
from llmgw.kit.clock import Clock
from llmgw.transport.http import Request, Response


class FleetApi:
    """Answers for one `Adoption`."""

    def __init__(self, adoption: Adoption, clock: Clock) -> None:
        self._adoption, self._clock = adoption, clock

    @property
    def routes(self) -> Routes:
        return {("GET", "/v1/fleet"): self._fleet}

    async def _fleet(self, request: Request) -> Response:
        standing = self._adoption.standing
        found = snapshot.Snapshot(
            at=self._clock.wall(),
            files=dict(standing.files) if standing is not None and self._adoption.catalog else {},
            given=self._adoption.given(),
            limits=self._adoption.limits,
        )
        return Response(200, snapshot.dump(found, redact=request.query.get("redact") == "1").encode())
