"""`llmgw fit`: sums that add up, a verdict, and what would do; offline for what lies here."""

import json
import pathlib
import re

import pytest

from llmgw.cli.doing.fit import source_of
from llmgw.cli.main import run
from llmgw.kit.sums import tenths
from tests.support import models, scripted_model

PROFILES = """\
kind: profile
name: h100-tp2
engine: vllm
gpus_per_node: 2
gpu: {memory: 80GiB}
gpu_memory_utilization: 0.95
"""
CPU = """\
kind: profile
name: small
engine: llamacpp
gpus_per_node: 0
cpu: {cores: 2, memory: 64MiB}
max_model_len: 2048
args: {parallel: 2}
"""


@pytest.fixture
def here(tmp_path: pathlib.Path) -> pathlib.Path:
    """A catalog, a 70B model that has no data, and a small one that has."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "tp2.yaml").write_text(PROFILES)
    (tmp_path / "catalog" / "tp4.yaml").write_text(
        PROFILES.replace("tp2", "tp4").replace("_node: 2", "_node: 4")
    )
    (tmp_path / "catalog" / "cpu.yaml").write_text(CPU)
    models.write(tmp_path / "llama", models.LLAMA_70B, 131)
    models.write(tmp_path / "qwen", models.QWEN25_7B, 14)
    scripted_model.write(tmp_path / "model.gguf", "I am read.")
    return tmp_path


def fit(here: pathlib.Path, source: str, *more: str) -> int:
    """The exit code of `llmgw fit`."""
    return run(["fit", str(here / source), "--catalog", str(here / "catalog"), *more])


def adds_up(line: str) -> bool:
    """Whether the numbers before the `=` make the one behind it."""
    *parts, total = re.findall(r"(?<![\d,])(\d+\.\d)(?= )", line)
    return sum(int(part.replace(".", "")) for part in parts) == int(total.replace(".", ""))


def test_what_does_not_fit_is_short_of_so_much_and_would_fit_with(
    here: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum, what there is, what is missing, and two ways out that are true."""
    assert fit(here, "llama", "--profile", "h100-tp2", "--max-model-len", "32768") == 1
    total, there_is, verdict, way_out = capsys.readouterr().out.splitlines()
    assert total.startswith("per card: 65.5 weights + 5.0 for one 32,768-token sequence + (estimated) ")
    assert adds_up(total)
    assert there_is.strip() == "of 75.2 GiB (79.18 x 0.95, which vllm takes in any case)"
    needed = float(total.rpartition("= ")[2].removesuffix(" GiB"))
    assert verdict == f"does not fit: {needed - 75.2:.1f} GiB short."
    offered = re.fullmatch(
        r"fits with --max-model-len (\d+), or --profile h100-tp4 \(then \d+\.\d x 32,768\)", way_out
    )
    assert offered
    assert fit(here, "llama", "--profile", "h100-tp2", "--max-model-len", offered[1]) == 0
    assert fit(here, "llama", "--profile", "h100-tp4", "--max-model-len", "32768") == 0


def test_what_fits_says_how_much_is_left(here: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Room for how many sequences at a time."""
    assert fit(here, "llama", "--profile", "h100-tp4", "--max-model-len", "8192") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"fits: \d+\.\d GiB to spare; KV for \d+\.\d x 8,192 tokens\.", last)


def test_another_card_may_be_asked_about(here: pathlib.Path) -> None:
    """The profile says which card; the option says what if."""
    wanted = ("--profile", "h100-tp2", "--max-model-len", "8192")
    assert fit(here, "llama", *wanted, "--gpu-memory", "141GB") == 0
    assert fit(here, "llama", *wanted, "--gpu-memory", "40GiB") == 1


def test_a_gguf_on_cpu_is_held_against_its_booking(
    here: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small sums are in MiB; both slots count."""
    assert fit(here, "model.gguf", "--profile", "small") == 0
    total, there_is, verdict, _ = capsys.readouterr().out.splitlines()
    assert "for 2 2,048-token sequences" in total
    assert total.endswith("MiB")
    assert adds_up(total)
    assert there_is.strip() == "of 64.0 MiB"
    assert verdict.startswith("fits: ")
    assert fit(here, "model.gguf", "--profile", "small", "--max-model-len", "32768") == 1


def test_what_the_engine_would_refuse_is_said_first(
    here: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """28 heads on 8 ranks do not start, however much memory there is."""
    eight = PROFILES.replace("tp2", "tp8").replace("_node: 2", "_node: 8")
    (here / "catalog" / "tp8.yaml").write_text(eight)
    assert fit(here, "qwen", "--profile", "h100-tp8") == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "error[E501]: 28 attention heads cannot be shared evenly by 8 ranks\n  help: tensor_parallel 1, 2 or 4"
    )
    assert "does not run: vllm would refuse it." in out
    assert "fits with --profile h100-tp2" in out


def test_json_has_the_same_numbers(here: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes, exact: terms and room make the budget."""
    assert fit(here, "llama", "--profile", "h100-tp2", "--max-model-len", "32768", "-o", "json") == 1
    answer = json.loads(capsys.readouterr().out)
    memory = answer["memory"]
    assert (answer["kind"], answer["fits"], answer["findings"]) == ("llmgw.fit", False, [])
    assert sum(term["size"] for term in memory["terms"]) + memory["room"] == memory["budget"]
    assert memory["short"] == memory["sequence"] - memory["room"]
    assert [other["name"] for other in answer["fits_with"]["profiles"]] == ["h100-tp4"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["llama", "--profile", "h100-tp3"], 64, "did you mean `h100-tp2`?"),
        (["nothing", "--profile", "small"], 1, "No such file"),
        (["catalog", "--profile", "small"], 1, "neither a config.json nor a GGUF file"),
        (["llama"], 64, "--profile"),
        (["llama", "--profile", "h100-tp2", "--gpu-memory", "80"], 64, "cannot read '80'"),
    ],
)
def test_refusals(
    here: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    """Each wrong call has its sentence and its code."""
    assert fit(here, *arguments) == code
    assert said in capsys.readouterr().err


def test_a_card_of_unknown_size_must_be_named(here: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody guesses which card is meant."""
    (here / "catalog" / "any.yaml").write_text("kind: profile\nname: any\nengine: vllm\n")
    assert fit(here, "llama", "--profile", "any") == 64
    assert "--gpu-memory is needed" in capsys.readouterr().err


def test_an_invalid_catalog_is_an_invalid_catalog(here: pathlib.Path) -> None:
    """Exit 3, as everywhere."""
    (here / "catalog" / "bad.yaml").write_text("kind: nothing\n")
    assert fit(here, "llama", "--profile", "h100-tp2") == 3


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("hf://org/name", "hf://org/name@main"),
        ("hf://org/name:x.gguf", "hf://org/name@main:x.gguf"),
        ("hf://org/name@abc1234", "hf://org/name@abc1234"),
        ("http://127.0.0.1/x.gguf", "http://127.0.0.1/x.gguf"),
        ("/models/x", "file:///models/x"),
    ],
)
def test_a_source_may_be_written_as_people_think_of_it(text: str, canonical: str) -> None:
    """Nothing is pinned before it is in a catalog."""
    assert source_of(text).canonical == canonical


@pytest.mark.parametrize("sizes", [[1, 1, 1], [33, 33, 34], [0, 5], [10**9, 7, 7, 7]])
def test_shown_parts_make_the_shown_total(sizes: list[int]) -> None:
    """Rounding is shared out: nobody finds a sum that does not add up."""
    shown = tenths(sizes, 7)
    assert sum(shown) == -(-10 * sum(sizes) // 7)
    assert all(abs(part - 10 * size / 7) < 1 for part, size in zip(shown, sizes, strict=True))
