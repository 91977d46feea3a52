// Starts `tilesim lsp` for the files that it checks, and says whether the workspace is trusted.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const FILES = "**/*.{py,ptx,tile,mir,cu,cuh,h,hpp,cpp,cc,cxx,inl}";
let client;

async function activate(context) {
  const settings = vscode.workspace.getConfiguration("tilesim");
  const [command, ...before] = settings.get("command");
  const docs = settings.get("docs");
  const server = {
    command,
    args: [
      ...before,
      "lsp",
      `--time-limit=${settings.get("timeLimit")}`,
      `--suggest=${settings.get("suggest")}`,
    ],
    options: { env: docs ? { ...process.env, TILESIM_DOCS: docs } : process.env },
  };
  const watcher = vscode.workspace.createFileSystemWatcher("**/*.ptx");
  client = new LanguageClient("tilesim", "tilesim", server, {
    documentSelector: [{ scheme: "file", pattern: FILES }],
    initializationOptions: { trusted: vscode.workspace.isTrusted },
    synchronize: { fileEvents: watcher },
  });
  const granted = vscode.workspace.onDidGrantWorkspaceTrust(() =>
    client.sendNotification("workspace/didChangeConfiguration", {
      settings: { tilesim: { trusted: true } },
    })
  );
  context.subscriptions.push(watcher, granted);
  await client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
