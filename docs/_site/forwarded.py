"""Shows the rows of EmbeddedCluster and ThreadedCluster, such as
``create_topic = forward("_topics", TopicControls.create_topic)``, as the methods that they are.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import griffe

_FORWARDING = "aioprod.testing.broker.controls.forwarding"


class Forwarded(griffe.Extension):
    """Replaces each row by the method to which it leads."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        module = pkg["testing.broker.embedded"]
        for name in ("EmbeddedCluster", "ThreadedCluster"):
            owner = module[name]
            for row in list(owner.members.values()):
                if isinstance(row, griffe.Attribute) and isinstance(row.value, griffe.ExprCall):
                    self._replace(pkg, owner, row)

    def _replace(self, pkg: griffe.Module, owner: griffe.Class, row: griffe.Attribute) -> None:
        kind = row.value.function.canonical_path.removeprefix(_FORWARDING + ".")
        if kind not in ("forward", "blocking", "blocking_rule"):
            return
        path = row.value.arguments[-1].canonical_path.removeprefix(pkg.path + ".")
        method = copy(pkg[path])
        method.name, method.parent, method.lineno = row.name, owner, row.lineno
        method.labels = method.labels - ({"async"} if kind != "forward" else set())
        if kind == "blocking_rule":
            method.returns = "ThreadedRule"
        owner.members[row.name] = method
