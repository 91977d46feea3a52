"""Gradients of tensors without storage.

Torch's engine asks the driver which devices have streams to wait for. The nodes of the graph that
it would run can be called without it, which is done here, each after all that it takes part in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

#: gradients that a node is given, by the number of its output
Given = dict[int, Any]


def backward(
    tensors: Any, grad_tensors: Any = None, *args: object, inputs: Any = None, **options: object
) -> None:
    """``torch.autograd.backward``: gradients are added to ``grad`` of the leaves."""
    only = None if inputs is None else {edge[0] for edge in map(_edge, _several(inputs))}
    for node, given in _walk(_several(tensors), _several(grad_tensors)):
        if _leaf(node) and 0 in given and (only is None or node in only):
            node(given[0])


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, *args: object, **options: object
) -> tuple[Any, ...]:
    """``torch.autograd.grad``: gradients are given back."""
    found = dict(_walk(_several(outputs), _several(grad_outputs)))
    return tuple(found.get(node, {}).get(index) for node, index in map(_edge, _several(inputs)))


def _walk(roots: Sequence[Any], gradients: Sequence[Any]) -> Iterator[tuple[Any, Given]]:
    """Every node of the graph with the gradients that it is given, from the results on."""
    import torch

    given: dict[Any, Given] = {}
    for at, root in enumerate(roots):
        known = gradients[at] if at < len(gradients) else None
        _add(given, *_edge(root), torch.ones_like(root) if known is None else known)
    for node in _order(given):
        yield node, given[node]
        if _leaf(node):
            continue
        with torch.no_grad():
            results = _called(node, given[node])
        for (following, index), result in zip(node.next_functions, results, strict=False):
            if following is not None:
                _add(given, following, index, result)


def _order(roots: Any) -> Iterator[Any]:
    """Nodes, each after all that lead to it."""
    leading: Counter[Any] = Counter()
    seen, left = set(roots), list(roots)
    while left:
        for following, _ in left.pop().next_functions:
            if following is not None:
                leading[following] += 1
                if following not in seen:
                    seen.add(following)
                    left.append(following)
    ready = [node for node in roots if not leading[node]]
    while ready:
        node = ready.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None:
                leading[following] -= 1
                if not leading[following]:
                    ready.append(following)


def _called(node: Any, given: Given) -> Sequence[Any]:
    """The gradients of the tensors that a node has taken."""
    import torch

    outputs = node._input_metadata
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return _several(node(*(given.get(index) for index in range(len(outputs)))))
    # a function of the script is given zeros for outputs that nothing depends on
    gradients = (
        given.get(index, torch.zeros(m.shape, dtype=m.dtype, device=m.device))
        for index, m in enumerate(outputs)
    )
    results = _several(node.apply(*gradients))
    # it gives one for everything that it has taken; the graph knows of tensors only
    wanted = (r for r, needed in zip(results, node.needs_input_grad, strict=False) if needed)
    return [None if edge[0] is None else next(wanted) for edge in node.next_functions]


def _add(given: dict[Any, Given], node: Any, index: int, gradient: Any) -> None:
    """One more gradient of a node's output, of the output's shape and type."""
    of_node = given.setdefault(node, {})
    if gradient is None:
        return
    output = node._input_metadata[index]
    if gradient.shape != output.shape:
        gradient = gradient.sum_to_size(output.shape)
    gradient = gradient.to(output.dtype)
    of_node[index] = of_node[index] + gradient if index in of_node else gradient


def _edge(tensor: Any) -> tuple[Any, int]:
    """The node that made a tensor, or that takes its gradient, and which of its outputs it is."""
    from torch.autograd.graph import get_gradient_edge

    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _leaf(node: Any) -> bool:
    """Whether it adds a gradient to a tensor of the script."""
    return not node.next_functions and hasattr(node, "variable")


def _several(values: Any) -> Sequence[Any]:
    """One value, some, or none."""
    if values is None:
        return ()
    return values if isinstance(values, (tuple, list)) else (values,)
