"""The whole way through the engine: a variant that fails or cannot run leaves its row, the others run, and the gate goes red."""

import json
import textwrap

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CONFIG = """
schema_version: 1
run: {device: cpu, threads: 1, launches: 1, blocks: 2, warmup_s: 0.3, sample_s: 0.002}
suites:
  fastrnns:
    - {variants: [%s], seq_length: 3, batch_size: 2, input_size: 4, hidden_size: 5}
policy: {severities: {baseline_missing: note, check_unknown: note, case_skipped: note}}
"""

PLANTS = """
    import importlib.machinery, sys

    class Planting:
        '''Changes the suite's structures as soon as they are imported, in every worker.'''

        def find_spec(self, name, path=None, target=None):
            if name != "ci_bench.suites.fastrnns.structures":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            execute = spec.loader.exec_module

            def planted(module):
                execute(module)
                premul = module.STRUCTURES["premul"]

                def broken(x, states, weights):
                    raise RuntimeError("planted: this variant is broken")

                def swapped(x, states, weights):
                    return premul(x, states, [weight.roll(1, 0) for weight in weights])

                module.STRUCTURES["premul"] = broken
                module.STRUCTURES["premul_bias"] = swapped

            spec.loader.exec_module = planted
            return spec

    sys.meta_path.insert(0, Planting())
"""


def gate(tmp_path, *variants):
    from ci_bench.cli import main

    config = tmp_path / "ci-bench.yml"
    config.write_text(CONFIG % ", ".join(variants))
    code = main(["gate", "--config", str(config), "--output", str(tmp_path / "out")])
    return code, {
        row["case"]["name"]: row
        for row in json.loads((tmp_path / "out" / "results.json").read_text())["cases"]
    }


def values(row, name, arm):
    (found,) = [one for one in row["metrics"] if (one["name"], one["arm"]) == (name, arm)]
    assert found["unit"] in {"s", "bytes"}
    return [value for launch in found["launches"] for value in launch["values"]]


def test_every_metric_of_a_sound_variant_is_there(tmp_path):
    code, rows = gate(tmp_path, "jit", "aten")

    assert code == 0
    assert {row["status"] for row in rows.values()} == {"ok"}
    for arm in ("aten", "jit"):
        forward, backward, step = (
            values(rows["jit"], name, arm)
            for name in ("forward_time", "backward_time", "step_time")
        )
        assert all(0 < one < 1 for one in (*forward, *backward)), "seconds, whatever the device"
        assert all(
            one + other < whole * 1.001
            for one, other, whole in zip(forward, backward, step, strict=True)
        )
        assert values(rows["jit"], "peak_anonymous", arm)
    assert values(rows["jit"], "compile_cold", "jit")
    assert rows["aten"]["case"]["arms"] == ["aten"]
    checks = {(check["name"], check["arm"]): check["outcome"] for check in rows["jit"]["checks"]}
    for name in ("agrees", "gradients_zeroed", "finite"):
        assert checks[name, "jit"] == checks[name, "aten"] == "pass"
    assert rows["jit"]["facts"]["compared_with"] == "nn.LSTM in double precision"


def test_speedups_over_the_reference_have_intervals(tmp_path):
    gate(tmp_path, "py")
    (case,) = json.loads((tmp_path / "out" / "comparison.json").read_text())["cases"]
    speedups = {one["metric"]: one for one in case["speedups"] if one["arm"] == "py"}
    assert {"forward_time", "backward_time"} <= {*speedups}
    assert all(one["reference"] == "aten" and one["speedup"] > 0 for one in speedups.values())


def test_what_fails_or_cannot_run_leaves_its_row_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(PLANTS))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, rows = gate(tmp_path, "py_premul", "py", "cudnn", "py_premul_bias", "aten")

    assert {name: row["status"] for name, row in rows.items()} == {
        "py_premul": "failed",
        "py": "ok",
        "cudnn": "skipped",
        "py_premul_bias": "ok",
        "aten": "ok",
    }
    assert "planted: this variant is broken" in rows["py_premul"]["failure"]["reason"]
    assert "needs cuDNN, so a CUDA GPU" in rows["cudnn"]["failure"]["reason"]
    agrees = {
        check["arm"]: check["outcome"]
        for check in rows["py_premul_bias"]["checks"]
        if check["name"] == "agrees"
    }
    assert agrees == {"aten": "pass", "py_premul_bias": "fail"}
    assert code == 1
    judged = json.loads((tmp_path / "out" / "comparison.json").read_text())["judgement"]
    assert {"check_failed", "case_failed"} <= {
        finding["rule"] for finding in judged["findings"] if finding["severity"] == "fail"
    }


def test_a_compiled_form_is_compiled_and_its_latencies_are_apart(tmp_path):
    code, rows = gate(tmp_path, "compile_rnn_tanh")

    row = rows["compile_rnn_tanh"]
    assert (code, row["status"]) == (0, "ok")
    assert row["case"]["arms"] == ["aten_rnn_tanh", "compile_rnn_tanh"]
    checks = {(check["name"], check["arm"]): check["outcome"] for check in row["checks"]}
    assert checks["compiled", "compile_rnn_tanh"] == checks["agrees", "compile_rnn_tanh"] == "pass"
    (cold,), (warm,) = (
        values(row, name, "compile_rnn_tanh") for name in ("compile_cold", "compile_warm")
    )
    assert cold > warm > 0
