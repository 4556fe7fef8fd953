"""What every test may ask for: scripted weights, a real engine, and children that end with the test."""

import pathlib
from collections.abc import Callable, Generator, Iterator

import hypothesis
import pytest

from tests.support import engines, scripted_model
from tests.support.processes import Processes

# Two shared cores: an example that takes long says something about the neighbours, not about the code.
hypothesis.settings.register_profile("llmgw", deadline=None)
hypothesis.settings.load_profile("llmgw")


@pytest.fixture(scope="session", autouse=True)
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands remember for completion goes nowhere near whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pathlib.Path]:
    """`scripted("I am alpha.", loop=False)` → a GGUF file that answers so, one for each sentence."""
    directory = tmp_path_factory.mktemp("weights")

    def weights(sentence: str, *, loop: bool = False) -> pathlib.Path:
        return scripted_model.cached(directory, sentence, loop=loop)

    return weights


@pytest.fixture(scope="session")
def llama_server() -> pathlib.Path:
    """The engine's executable."""
    assert engines.LLAMA_SERVER.exists(), f"{engines.LLAMA_SERVER} is missing: run `make test`"
    return engines.LLAMA_SERVER


@pytest.fixture
def processes(tmp_path: pathlib.Path) -> Iterator[Processes]:
    """Children that end with the test; their output stands in its `tmp_path`."""
    with Processes(tmp_path) as started:
        yield started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its children said last."""
    report = yield
    started = getattr(item, "funcargs", {}).get("processes")
    if report.failed and isinstance(started, Processes):
        report.sections.append(("Children", started.last_words()))
    return report
