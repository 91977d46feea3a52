"""``editors/vscode``: what VS Code is told, and how the extension starts the server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tilesim.cli import main

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
PACKAGE: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
SCRIPT = (FOLDER / "extension.js").read_text()
#: runs the extension with stand-ins for VS Code and its client, and prints what they are told
HOST = """
const Module = require("module");
const told = { pushed: 0 };
const settings = SETTINGS;
let granted;
class LanguageClient {
  constructor(id, name, server, options) { Object.assign(told, { id, server, options }); }
  async start() { told.started = true; }
  async stop() { told.stopped = true; }
  sendNotification(method, params) { told.sent = [method, params]; }
}
const workspace = {
  isTrusted: false,
  getConfiguration: (section) => ({ get: (name) => settings[`${section}.${name}`] }),
  createFileSystemWatcher: (pattern) => ({ pattern }),
  onDidGrantWorkspaceTrust: (listener) => { granted = listener; return {}; },
};
const load = Module._load;
Module._load = (name, ...rest) => ({
  vscode: { workspace }, "vscode-languageclient/node": { LanguageClient },
}[name] ?? load(name, ...rest));
(async () => {
  const extension = require(PATH);
  await extension.activate({ subscriptions: { push: (...all) => { told.pushed += all.length; } } });
  granted();
  await extension.deactivate();
  delete told.server.options.env;
  console.log(JSON.stringify(told));
})();
"""


def test_the_package_says_what_vs_code_asks_for() -> None:
    assert PACKAGE["name"] == "tilesim"
    assert re.fullmatch(r"\d+\.\d+\.\d+", PACKAGE["version"])
    assert {"publisher", "license", "description", "categories"} <= PACKAGE.keys()
    assert re.fullmatch(r"\^\d+\.\d+\.\d+", PACKAGE["engines"]["vscode"])
    assert (FOLDER / PACKAGE["main"]).is_file()
    assert PACKAGE["dependencies"].keys() == set(re.findall(r'require\("([\w-]+)/node"\)', SCRIPT))
    settings = PACKAGE["contributes"]["configuration"]["properties"]
    used = re.findall(r'settings\.get\("(\w+)"\)', SCRIPT)
    assert settings.keys() == {f"tilesim.{name}" for name in used}
    for setting in settings.values():
        assert setting["description"]
        kind = {"array": list, "string": str}[setting["type"]]
        assert isinstance(setting["default"], kind)
        assert re.fullmatch(setting.get("pattern", ".*"), str(setting["default"]))


def test_a_workspace_that_is_not_trusted_chooses_no_program() -> None:
    limited = PACKAGE["capabilities"]["untrustedWorkspaces"]
    assert limited["supported"] == "limited"
    assert "tilesim.command" in limited["restrictedConfigurations"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_extension_starts_the_server_and_says_who_is_trusted() -> None:
    properties = PACKAGE["contributes"]["configuration"]["properties"]
    defaults = {name: setting["default"] for name, setting in properties.items()}
    script = HOST.replace("SETTINGS", json.dumps(defaults))
    script = script.replace("PATH", json.dumps(str(FOLDER / "extension.js")))
    done = subprocess.run(
        ["node", "-e", script], capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert (told["started"], told["stopped"], told["pushed"]) == (True, True, 2)
    assert told["options"]["initializationOptions"] == {"trusted": False}
    trusted = {"settings": {"tilesim": {"trusted": True}}}
    assert told["sent"] == ["workspace/didChangeConfiguration", trusted]
    assert told["server"]["command"] == "tilesim"
    asked = [*told["server"]["args"], "--help"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert "--trust" in result.output
