"""``tilesim mcp``, asked by a client of the SDK over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tilesim
from tests.cli import kernels
from tilesim.cli import main

mcp: Any = pytest.importorskip("mcp.client", reason="needs the mcp extra")
stdio: Any = pytest.importorskip("mcp.client.stdio", reason="needs the mcp extra")
runner: Any = pytest.importorskip("click.testing")

ROOT = Path(tilesim.__file__).resolve().parent.parent
#: never loaded, and never interrupted
ENDLESS = """
import signal
import time

signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    time.sleep(60)
"""
#: writes to both outputs before it raises
NOISY = """
import sys

print("to stdout")
print("error: not the one", file=sys.stderr)
raise ValueError("of the target")
"""
Call = tuple[str, dict[str, Any]]
#: seconds for calls that are not about that: on a busy machine they take long
LONG = 280
CALLS: dict[str, Call] = {
    "bad": ("check", {"targets": ["bad.py"]}),
    "good": ("check", {"targets": ["good.py", "missing.py"], "params": {"rounds": 3}}),
    "suggest": ("suggest", {"targets": ["bad.py"], "search": LONG}),
    "show": ("show", {"target": "good.py"}),
    "mir": ("show", {"target": "good.tile", "mir": True}),
    "explain": ("explain", {"rules": ["deadlock", "A13"]}),
    "endless": ("check", {"targets": ["endless.py"], "seconds": 2}),
    "noisy": ("show", {"target": "noisy.py"}),
    "missing": ("check", {"targets": ["missing.py"]}),
    "stdin": ("check", {"targets": ["-"]}),
    "option": ("check", {"targets": ["--python"]}),
    "parameter": ("check", {"targets": ["good.py"], "params": {"round": 1}}),
    "rule": ("explain", {"rules": ["dead-lock"]}),
    "nothing": ("check", {"targets": []}),
}


async def _ask(folder: Path, options: tuple[str, ...], calls: Mapping[str, Call]) -> dict[str, Any]:
    server = stdio.StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "tilesim", "mcp", *options], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    async with mcp.Client(stdio.stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        results = await asyncio.gather(
            *(
                client.call_tool(tool, given if tool == "explain" else {"seconds": LONG, **given})
                for tool, given in calls.values()
            )
        )
        answers: dict[str, Any] = dict(zip(calls, results, strict=True))
        if "bad" in calls:
            (result,) = answers["bad"].structured_content["results"]
            witness = result["findings"][0]["witness"]
            replayed = {"target": "bad.py", "witness": witness, "events": True, "seconds": LONG}
            answers["trace"] = await client.call_tool("trace", replayed)
        return {"tools": tools, **answers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with targets."""
    place = tmp_path_factory.mktemp("mcp")
    for name, text in {
        "good.py": kernels.GOOD, "bad.py": kernels.BAD, "endless.py": ENDLESS, "noisy.py": NOISY,
    }.items():  # fmt: skip
        (place / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        runner.CliRunner().invoke(main, ["show", "good.py", "-o", "good.tile"])
    return place


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, Any]:
    """What the server answers, asked all at once."""
    return asyncio.run(_ask(folder, (), CALLS))


@pytest.fixture
def printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the command line prints as JSON."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Any:
        command = [*arguments, "--format", "json"]
        return json.loads(runner.CliRunner().invoke(main, command).stdout)

    return run


def test_a_client_is_told_of_the_tools(answers: dict[str, Any]) -> None:
    tools = {tool.name: tool for tool in answers["tools"]}
    assert tools.keys() == {"check", "suggest", "show", "trace", "explain"}
    for tool in tools.values():
        assert tool.description
        assert all("description" in p for p in tool.input_schema["properties"].values())


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("bad", ("check", "bad.py")),
        ("good", ("check", "good.py", "missing.py", "--param", "rounds=3")),
        ("show", ("show", "good.py", "--locations")),
        ("mir", ("show", "good.tile", "--mir", "--locations")),
        ("explain", ("explain", "deadlock", "A13")),
    ],
)
def test_a_tool_returns_what_the_command_prints(
    name: str, command: tuple[str, ...], answers: dict[str, Any], printed: Callable[..., Any]
) -> None:
    answer = answers[name]
    assert not answer.is_error
    assert answer.structured_content == printed(*command)
    assert json.loads(answer.content[0].text) == answer.structured_content


def test_a_repair_is_suggested(answers: dict[str, Any]) -> None:
    (result,) = answers["suggest"].structured_content["results"]
    assert result["verdict"] == "failed"
    assert result["repairs"]["found"]


def test_a_witness_is_traced(answers: dict[str, Any]) -> None:
    document = answers["trace"].structured_content
    assert [finding["rule"] for finding in document["findings"]] == ["deadlock"]
    assert any(line.endswith("!") for line in document["text"][0])
    assert document["trace"]["traceEvents"]
    assert "output" not in document


def test_errors_are_those_of_the_command_line(answers: dict[str, Any]) -> None:
    for name, said in {
        "endless": "no answer within 2 s",
        "noisy": "ValueError: of the target",
        "missing": "missing.py: no such file",
        "stdin": "standard input is no target here: name a file",
        "option": "there is no file and no module --python",
        "parameter": "kernel handshake has no parameter 'round' (did you mean rounds?)",
        "rule": "there is no rule 'dead-lock'; did you mean deadlock?",
        "nothing": "at least 1 item",
    }.items():
        answer = answers[name]
        assert answer.is_error, name
        assert said in answer.content[0].text, name
        assert "Traceback" not in answer.content[0].text, name
    assert "not the one" not in answers["noisy"].content[0].text


def test_data_only_runs_no_code(folder: Path) -> None:
    ran = folder / "ran"
    for name in ("code.py", "click.py"):  # one that is named, one as an installed module is called
        (folder / name).write_text(f"open({str(ran)!r}, 'w').close()\n")
    calls: dict[str, Call] = {
        "file": ("check", {"targets": ["code.py"]}),
        "module": ("show", {"target": "code"}),
        "tile": ("check", {"targets": ["good.tile"]}),
    }
    answers = asyncio.run(_ask(folder, ("--data-only",), calls))
    for name in ("file", "module"):
        assert answers[name].is_error
        assert "is code, which this server does not run" in answers[name].content[0].text
    assert not ran.exists()
    (result,) = answers["tile"].structured_content["results"]
    assert result["verdict"] == "proved"
