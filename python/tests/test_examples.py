"""The examples: a language model and a notebook; the package's types."""

import json
import pathlib
import subprocess
import sys

import pytest

import tensafe
from conftest import EXAMPLES, ROOT
from tensafe import cli


def test_language_model_writes_what_the_cpp_example_writes():
    pytest.importorskip("torch")
    import tiny_lm
    expected = (tiny_lm.DATA / "job_hath_spoken.txt").read_text()
    adapter = tensafe.load_peft(tiny_lm.DATA / "adapter")
    model = tiny_lm.load()
    with tensafe.torch.attach(model, adapter, tokens_ahead=32):
        text = tiny_lm.generate(model, "Job hath spoken", 500)
    assert text == expected
    assert not text.startswith(tiny_lm.generate(model, "Job hath spoken", 40))  # detached
    assert text == tiny_lm.generate(tiny_lm.merge(model, adapter), "Job hath spoken", 500)


def test_notebook(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib").use("Agg")
    notebook = json.loads((EXAMPLES / "private_adapter.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["error"] < 1e-3 and names["pyplot"].get_fignums()


def test_types(tmp_path):
    pytest.importorskip("mypy")
    package = pathlib.Path(tensafe.__file__).parent
    assert (package / "py.typed").exists()
    use = tmp_path / "use.py"
    use.write_text("import numpy as np\nimport tensafe\n"
                   "adapter = tensafe.load_peft('d')\n"
                   "server = tensafe.Server(adapter, tokens_ahead=2)\n"
                   "session = tensafe.Client(server).connect(server)\n"
                   "session = tensafe.Client(server.layout, server.held).connect(lambda request: request)\n"
                   "session.delta('q', np.zeros(3, np.float32)).any()\n"
                   "left = session.queries_left\n"
                   "print(left is None or left > 3)\n"
                   "tensafe.estimate(adapter['q'])['bytes_up'] + 1\n"
                   "tensafe.Server(7)\n")
    run = subprocess.run([sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", tmp_path / "cache",
                          use], capture_output=True, text=True)
    said = [line.split(": ", 1)[1] for line in run.stdout.splitlines() if ": error:" in line]
    assert len(said) == 1 and 'expected "Adapter"' in said[0], run.stdout


def test_version(capsys):
    header = (ROOT / "include/tensafe/core/version.hpp").read_text()
    assert tensafe.__version__ == ".".join(line.split()[-1] for line in header.splitlines() if "#define" in line)
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"tensafe {tensafe.__version__}\n"
    assert json.loads((ROOT / "packaging/vcpkg/vcpkg.json").read_text())["version"] == tensafe.__version__
