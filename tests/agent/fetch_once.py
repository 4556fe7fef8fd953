"""A process that fetches one source and says its path: to be killed by test_weights.

python -m tests.agent.fetch_once CACHE URL SHA256
"""

import asyncio
import pathlib
import sys

from llmgw.catalog.sources import parse
from tests.agent.fetching import store


async def main(root: str, url: str, sha256: str) -> None:
    async with store(pathlib.Path(root)) as held:
        print(await held.weights.ensure(parse(url, sha256)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
