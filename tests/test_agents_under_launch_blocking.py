"""Launch blocking holds back CUDA launches, not a foreign agent: found by random designs, the machine was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from fencepost.cli import run

DESIGN = '''
import fencepost as fp


def posts(wait: bool = False) -> fp.Design:
    d = fp.Design("posts")
    memory, nic = d.pinned("memory"), d.agent("NIC")

    @d.loop("worker")
    def step():
        memory.write()
        sent = nic.post("send", reads=[memory])
        if wait:
            sent.synchronize()

    return d
'''


@pytest.mark.parametrize("environment", ["launch-blocking-kernels", "launch-blocking"])
def test_an_agents_read_is_overtaken_all_the_same(
    environment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "posts.py").write_text(DESIGN)
    target = [f"{tmp_path}/posts.py", "--environment", environment]
    assert run(["check", *target]) == 1
    assert "WAR memory" in capsys.readouterr().out
    assert run(["simulate", *target, "--examples", "50"]) == 1
    assert "wrong value" in capsys.readouterr().out
    assert run(["simulate", *target, "--examples", "50", "--set", "wait=true"]) == 3  # nothing found proves nothing
    assert "no wrong value" in capsys.readouterr().out
