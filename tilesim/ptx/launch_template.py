"""The skeleton of a launch description, from what the PTX says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilesim.findings.source_names import parameter_names
from tilesim.ptx.demangle import readable
from tilesim.ptx.description import MISSING, SCHEMA, as_text
from tilesim.ptx.syntax import Function, Instruction, Module, Name, Variable

#: bytes of a tensor map
_MAP = 128
#: what only a CTA does that is one of several of a cluster, or may be. Copies through tensor maps
#: name ``shared::cluster`` and scopes ``cluster`` in kernels without clusters, too.
_OPCODES = re.compile(
    r"mapa|getctarank|barrier\.cluster|(st|red)\.async|.*multicast::cluster|.*cta_group::2"
    r"|(ld|st|atom|red|mbarrier)\b.*shared::cluster"
)
_REGISTERS = re.compile(r"%(cluster_|clusterid|nclusterid|is_explicit_cluster)")


def template(module: Module, entries: Sequence[Function], *, registers: int | None = None) -> str:
    """The description of a kernel as JSON, or a list of those of several, with `MISSING` wherever
    a value has to be filled in. ``registers``: the most per thread that ptxas was told, where the
    PTX does not say."""
    return together(descriptions(module, entries, registers=registers))


def together(found: Sequence[dict[str, Any]]) -> str:
    """The text of a description, or of a list of several."""
    return as_text(found[0] if len(found) == 1 else found)


def descriptions(
    module: Module, entries: Sequence[Function], *, registers: int | None = None
) -> list[dict[str, Any]]:
    """The descriptions of kernels of a module, as `template` has them."""
    open_ = any(v.space == "shared" and v.linkage == "extern" for v in module.variables)
    bodies = [f.body for f in module.functions if not f.entry and f.body is not None]
    called = any(map(_is_of_cluster, (step for body in bodies for step in body.code)))
    return [
        _description(
            entry,
            MISSING if open_ else 0,
            registers,
            called,
            parameter_names(module.source_of(entry), readable(entry.name), len(entry.params)),
        )
        for entry in entries
    ]


def _is_of_cluster(step: Instruction) -> bool:
    names = (o.text for o in step.operands if isinstance(o, Name))
    return bool(_OPCODES.match(step.opcode)) or any(map(_REGISTERS.match, names))


def _description(
    entry: Function,
    dynamic_shared: object,
    registers: int | None,
    called: bool,
    names: Sequence[str],
) -> dict[str, Any]:
    """``called``: functions of the module do what only CTAs of a cluster do; ``names``:
    what its source calls its parameters."""
    says = entry.directives
    code = () if entry.body is None else entry.body.code
    is_open = called or "explicitcluster" in says or any(map(_is_of_cluster, code))
    cluster = (MISSING,) if is_open else (1, 1, 1)
    document: dict[str, Any] = {
        "schema": SCHEMA, "entry": entry.name, "grid": [MISSING],
        "block": list(says.get("reqntid", (MISSING,))),
        "cluster": list(says.get("reqnctapercluster", cluster)),
        "dynamic_shared": dynamic_shared,
    }  # fmt: skip
    if "maxnreg" in says:
        registers = says["maxnreg"][0]
    if registers is not None:
        document["registers"] = registers
    document["params"] = [
        _parameter(formal, (names[number] if names else "") or formal.name)
        for number, formal in enumerate(entry.params)
    ]
    return document


def _parameter(param: Variable, name: str) -> dict[str, Any]:
    if param.shape and param.size == _MAP and param.alignment >= 64:
        return {
            "kind": "map", "name": name, "type": MISSING, "shape": [MISSING], "strides": [MISSING],
            "box": [MISSING], "swizzle": MISSING,
        }  # fmt: skip
    if param.shape:
        return {"kind": "struct", "name": name, "size": param.size, "data": MISSING, "fields": []}
    if param.pointer is not None:
        return {"kind": "pointer", "name": name, "bytes": MISSING}
    if param.type in ("u64", "b64"):
        return {"kind": f"{MISSING}: a pointer or a scalar", "name": name}
    return {"kind": "scalar", "name": name, "type": param.type, "value": MISSING}
