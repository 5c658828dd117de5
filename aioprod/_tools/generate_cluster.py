"""Generates the calls of ``EmbeddedCluster`` and ``ThreadedCluster`` that are forwarded.

``python -m aioprod._tools.generate_cluster`` reads the classes in
``aioprod/testing/broker/controls`` and writes a plain method for each of their calls into
``aioprod/testing/broker/calls``, with the same signature and documentation. With ``--check`` it
writes nothing, and fails if a module is not up to date.

The generated classes have the names of the classes that inherit from them, so that tracebacks and
errors show the names that users know.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from aioprod._tools.output import bring_up_to_date, formatted, parser_of
from aioprod.testing import broker
from aioprod.testing.broker.controls.access import AccessControls
from aioprod.testing.broker.controls.configs import ConfigControls
from aioprod.testing.broker.controls.groups import GroupControls
from aioprod.testing.broker.controls.nodes import NodeControls
from aioprod.testing.broker.controls.replicas import ReplicaControls
from aioprod.testing.broker.controls.requests import RequestControls
from aioprod.testing.broker.controls.topics import TopicControls
from aioprod.testing.broker.telemetry.receiver import TelemetryReceiver
from aioprod.testing.broker.transactions.coordinator import TransactionCoordinator

DIRECTORY = Path(broker.__file__).parent / "calls"
COMMAND = "python -m aioprod._tools.generate_cluster"

#: Attribute of EmbeddedCluster -> its class, and the calls that are forwarded to it; without names,
#: all public methods that EmbeddedCluster does not define itself.
RECEIVERS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "_nodes": (NodeControls, ()),
    "_replicas": (ReplicaControls, ()),
    "_topics": (TopicControls, ()),
    "_configs": (ConfigControls, ()),
    "_access": (AccessControls, ()),
    "_groups": (GroupControls, ()),
    "_transactions": (
        TransactionCoordinator,
        ("expire_transaction", "pause_markers", "resume_markers"),
    ),
    "_telemetry": (TelemetryReceiver, ("subscribe_to_metrics",)),
    "_requests": (RequestControls, ()),
}
_BY_HAND = {"start"}
#: Modules to write, and the attributes whose calls they contain. Each module's classes extend those
#: of the previous one.
MODULES: Mapping[str, tuple[str, ...]] = {
    "nodes": ("_nodes", "_replicas", "_access"),
    "topics": ("_topics", "_configs"),
    "clients": ("_groups", "_transactions", "_telemetry", "_requests"),
}


class Call(NamedTuple):
    """A method to forward.

    Attributes:
        receiver: the attribute of EmbeddedCluster that the call is forwarded to.
        method: the method's definition.
        docstring: its text, as in the source.
    """

    receiver: str
    method: ast.FunctionDef | ast.AsyncFunctionDef
    docstring: str

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def parameters(self) -> str:
        """The parameters with ``self``, as in the source."""
        return ast.unparse(self.method.args)

    @property
    def arguments(self) -> str:
        """The parameters as arguments of the forwarded call."""
        given = self.method.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)][1:]
        if given.vararg is not None:
            names.append(f"*{given.vararg.arg}")
        names += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
        return ", ".join(names)

    @property
    def returns(self) -> str:
        """The annotation of the result."""
        return "None" if self.method.returns is None else ast.unparse(self.method.returns)


def calls() -> Iterator[Call]:
    """Return all calls to forward, in the order of ``RECEIVERS``."""
    for receiver, (kind, names) in RECEIVERS.items():
        source = textwrap.dedent(inspect.getsource(kind))
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for method in definition.body:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            is_public = not method.name.startswith("_") and not method.decorator_list
            if method.name in names or (not names and is_public and method.name not in _BY_HAND):
                text = ast.get_docstring(method, clean=False)
                assert text, f"{kind.__name__}.{method.name} has no docstring"
                yield Call(receiver, method, text)


def embedded_method(call: Call) -> str:
    """Write a method of EmbeddedCluster."""
    is_async = isinstance(call.method, ast.AsyncFunctionDef)
    answer = f"self.{call.receiver}.{call.name}({call.arguments})"
    return _method(
        f"{'async ' if is_async else ''}def {call.name}({call.parameters}) -> {call.returns}:",
        call.docstring,
        _returned(call, f"await {answer}" if is_async else answer),
    )


def threaded_method(call: Call) -> str:
    """Write a method of ThreadedCluster."""
    answer = f"self._portal.call(lambda: self._broker.{call.name}({call.arguments}))"
    returns = call.returns
    if returns == "Rule":
        answer, returns = f"ThreadedRule({answer}, self._portal)", "ThreadedRule"
    return _method(
        f"def {call.name}({call.parameters}) -> {returns}:", call.docstring, _returned(call, answer)
    )


def _returned(call: Call, answer: str) -> str:
    return answer if call.returns == "None" else f"return {answer}"


def _method(head: str, docstring: str, body: str) -> str:
    return f'    {head}\n        """{docstring}"""\n        {body}\n\n'


def _imports(chosen: Sequence[Call]) -> list[str]:
    """Return the imports for the annotations and defaults of methods; they are those of the modules
    that define the methods.
    """
    found = set()
    for call in chosen:
        kind, _ = RECEIVERS[call.receiver]
        module = inspect.getmodule(kind)
        assert module is not None
        found.add(f"from {module.__name__} import {kind.__name__}")
        homes = _homes(ast.parse(inspect.getsource(module)))
        for part in (call.method.args, call.method.returns):
            for node in ast.walk(part) if part is not None else ():
                if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                    home = homes.get(node.id, module.__name__)
                    found.add(f"from {home} import {node.id}")
    if any(call.returns == "Rule" for call in chosen):
        found.add("from aioprod.testing.broker.rules import ThreadedRule")
    found.add("from anyio.from_thread import BlockingPortal")
    return sorted(found)


def _homes(tree: ast.Module) -> dict[str, str]:
    return {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def module_text(name: str, base: str | None) -> str:
    """Return a module with parts of both clusters.

    Args:
        base: the module whose classes are extended.
    """
    chosen = [call for call in calls() if call.receiver in MODULES[name]]
    if base is not None:
        base = f"aioprod.testing.broker.calls.{base}"
    lines = [
        f'"""Calls of embedded clusters: {name}.\n\nGenerated by ``{COMMAND}``.\n"""\n',
        "from __future__ import annotations\n",
        *_imports(chosen),
    ]
    if base is not None:
        lines += [f"from {base} import EmbeddedCluster as _Embedded"]
        lines += [f"from {base} import ThreadedCluster as _Threaded"]
    receivers = [f"    {each}: {RECEIVERS[each][0].__name__}" for each in MODULES[name]]
    lines += [
        f"\n\nclass EmbeddedCluster{'(_Embedded)' if base else ''}:",
        '    """A part of :class:`aioprod.testing.EmbeddedCluster`."""\n',
        *receivers,
        "",
        *map(embedded_method, chosen),
        f"\nclass ThreadedCluster{'(_Threaded)' if base else ''}:",
        '    """A part of :class:`aioprod.testing.ThreadedCluster`."""\n',
        "    _broker: EmbeddedCluster",
        "    _portal: BlockingPortal",
        "",
        *map(threaded_method, chosen),
    ]
    return "\n".join(lines)


def generate() -> dict[str, str]:
    """Return the texts of the modules by file name."""
    bases = dict(pairwise(MODULES))
    base_of = {name: base for base, name in bases.items()}
    texts = {f"{name}.py": module_text(name, base_of.get(name)) for name in MODULES}
    texts["__init__.py"] = f'"""Generated by ``{COMMAND}``."""\n'
    return formatted(texts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(COMMAND, "Generate the forwarded calls of the embedded cluster.")
    files = {DIRECTORY / name: text for name, text in generate().items()}
    return bring_up_to_date(files, check=parser.parse_args(arguments).check, directory=DIRECTORY)


if __name__ == "__main__":
    raise SystemExit(main())
