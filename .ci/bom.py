"""Completes the bill of materials of a release, which cyclonedx-py made of an environment with penstock.

    .ci/bom.py ENVIRONMENT BUNDLE... <found >bill

penstock becomes what the bill is of. Below each distribution stands what its own bills of materials list (PEP 770): the
Rust crates that are compiled into it, and the libraries that were copied into its wheel. One bill is for all
architectures, so their bundles must hold the same versions. The result is checked against CycloneDX's schema.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DISTRIBUTION = "pg-penstock"


def complete(bill: dict[str, Any], inner: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the bill with the components of inner bills, by distribution, below their distributions."""
    components = [
        component | ({"components": _without_refs(inner[key])} if inner.get(key := _key(component["name"])) else {})
        for component in bill["components"]
    ]
    [own] = [component for component in components if component["name"] == DISTRIBUTION]
    components.remove(own)
    return bill | {
        "metadata": bill["metadata"] | {"component": own | {"type": "application"}},
        "components": components,
    }


def versions_of(wheels: list[str]) -> dict[str, str]:
    """Return the versions of distributions, from the names of their wheels."""
    return dict(sorted(name.split("-")[:2] for name in wheels))


def _key(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _without_refs(components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Several bills have the same crate with the same reference, which may be in a bill only once."""
    return [
        {name: value for name, value in component.items() if name != "bom-ref"}
        | ({"components": _without_refs(component["components"])} if "components" in component else {})
        for component in components
    ]


def _read_inner(environment: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(environment.glob("lib/python*/site-packages/*.dist-info/sboms/*.json")):
        distribution = _key(path.parents[1].name.split("-")[0])
        found.setdefault(distribution, []).extend(json.loads(path.read_text("utf-8")).get("components", []))
    return found


def main() -> None:
    """Read what was found from standard input, write the bill to standard output."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    environment, *bundles = map(Path, sys.argv[1:])
    first, *others = [versions_of([path.name for path in bundle.glob("*.whl")]) for bundle in bundles]
    for versions in others:
        if first != versions:
            sys.exit(f"the bundles hold different versions: {sorted(first.items() ^ versions.items())}")
    text = json.dumps(complete(json.load(sys.stdin), _read_inner(environment)), indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        sys.exit(f"the bill of materials breaks CycloneDX's schema: {error}")
    print(text)


if __name__ == "__main__":
    main()
