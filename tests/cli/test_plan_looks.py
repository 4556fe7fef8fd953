"""The whole way: a hub, a control plane, and `llmgw plan` of a model that its engine would refuse."""

import json
import pathlib

from llmgw.cli.exits import Exit
from tests.support import models
from tests.support.ports import free_port
from tests.support.processes import Processes, run_llmgw
from tests.support.waiting import wait_for
from tests.support.weights_server import WeightsServer

SHA = "ab" * 20
MODEL = f"kind: model\nname: qwen\nsource: hf://Qwen/Qwen3-14B@{SHA}\nprofiles: [five]\n"
PROFILE = "kind: profile\nname: five\nengine: vllm\ngpus_per_node: {gpus}\n"


def test_plan_refuses_before_a_byte_of_weights_is_fetched(tmp_path: pathlib.Path) -> None:
    """Exit 3 with rule, file, line and what would do; with four cards the same model is planned."""
    listing = {
        "sha": SHA,
        "siblings": [{"rfilename": "config.json"}, {"rfilename": "tokenizer.json", "size": 9}],
    }
    hub = {
        f"/api/models/Qwen/Qwen3-14B/revision/{SHA}": json.dumps(listing).encode(),
        f"/Qwen/Qwen3-14B/resolve/{SHA}/config.json": json.dumps(models.QWEN3_14B).encode(),
    }
    where = f"127.0.0.1:{free_port()}"
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    (catalog / "qwen.yaml").write_text(MODEL)
    with WeightsServer(hub) as server, Processes(tmp_path) as processes:
        state = str(tmp_path / "state")
        processes.llmgw(
            "serve", "serve", "--listen", where, "--state-dir", state, "--hub", f"http://{server.address}"
        )
        wait_for(lambda: run_llmgw("status", "--server", where).returncode == 0, "the control plane answers")
        (catalog / "five.yaml").write_text(PROFILE.format(gpus=5))
        refused = run_llmgw("plan", str(catalog), "--server", where)
        (catalog / "five.yaml").write_text(PROFILE.format(gpus=4))
        planned = run_llmgw("plan", str(catalog), "--server", where)
    assert refused.returncode == Exit.INVALID
    assert "error[E503]: vllm cannot run qwen like this: the vocabulary, 151936" in refused.stderr
    assert f"{catalog}/five.yaml:4:1" in refused.stderr
    assert "tensor_parallel 1, 2, 4 or 8 would do" in refused.stderr
    assert planned.returncode == Exit.DONE
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == [SHA, "config.json"]
