"""Cut GitHub's own OpenAPI description down to the operations that ci-bench uses: ``python trim_openapi.py DESCRIPTION OUT``.

DESCRIPTION is `generated/api.github.com.json` of the npm package `@octokit/openapi` (`npm pack
@octokit/openapi`, MIT). The result is plain JSON Schema 2020-12, so that `jsonschema` can check
requests and replies, with GitHub's example of each reply, which the fake GitHub fills in. What the
description gets wrong is put right here, in `TRUTHS`, each with its reason.
"""

import json
import sys
from pathlib import Path
from typing import Any

REPO = "/repos/{owner}/{repo}"
OPERATIONS = {
    f"{REPO}/actions/artifacts": ["get"],
    f"{REPO}/actions/artifacts/{{artifact_id}}/{{archive_format}}": ["get"],
    f"{REPO}/actions/runs/{{run_id}}": ["get"],
    f"{REPO}/actions/runs/{{run_id}}/artifacts": ["get"],
    f"{REPO}/check-runs": ["post"],
    f"{REPO}/check-runs/{{check_run_id}}": ["get", "patch"],
    f"{REPO}/commits": ["get"],
    f"{REPO}/commits/{{ref}}/check-runs": ["get"],
    f"{REPO}/commits/{{ref}}/statuses": ["get"],
    f"{REPO}/compare/{{basehead}}": ["get"],
    f"{REPO}/contents/{{path}}": ["get"],
    f"{REPO}/issues": ["get", "post"],
    f"{REPO}/issues/comments/{{comment_id}}": ["patch", "delete"],
    f"{REPO}/issues/{{issue_number}}": ["get", "patch"],
    f"{REPO}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPO}/pulls": ["get"],
    f"{REPO}/pulls/{{pull_number}}": ["get"],
    f"{REPO}/statuses/{{sha}}": ["post"],
}
WORDS_ONLY = {
    "description",
    "example",
    "examples",
    "title",
    "externalDocs",
    "deprecated",
    "default",
    "discriminator",
    "xml",
}
LISTED = 2
"""How many items of an example list are kept."""
TRUTHS = {
    (
        "workflow-run",
        "head_repository",
    ): "null once the fork is deleted (github/rest-api-description#1586)",
    (
        "pull-request",
        "repo",
    ): "`head.repo` is null once the fork is deleted (github/rest-api-description#1586)",
    (
        "pull-request-simple",
        "repo",
    ): "`head.repo` is null once the fork is deleted (github/rest-api-description#1586)",
}
"""Properties that the description calls never null, by schema."""
NOTICE = """GitHub's OpenAPI description, as published in @octokit/openapi {version}, cut down by trim_openapi.py.
MIT License Copyright (c) 2020 Octokit contributors. Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without
limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright notice and this
permission notice (including the next paragraph) shall be included in all copies or substantial portions of the Software. THE SOFTWARE
IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def main(description: Path, out: Path) -> None:
    """Write the cut description."""
    full = json.loads(description.read_text(encoding="utf-8"))
    schemas: dict[str, Any] = {}
    operations = [
        operation(full, schemas, path, method)
        for path, methods in OPERATIONS.items()
        for method in methods
    ]
    for name, property_name in TRUTHS:
        assert allow_null(schemas[name], property_name), (name, property_name)
    whole = {
        "notice": " ".join(NOTICE.format(version=full["info"]["version"]).split()),
        "truths": {f"{name}.{field}": why for (name, field), why in TRUTHS.items()},
        "operations": operations,
        "$defs": dict(sorted(schemas.items())),
    }
    out.write_text(json.dumps(whole, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def operation(
    full: dict[str, Any], schemas: dict[str, Any], path: str, method: str
) -> dict[str, Any]:
    """One operation: its parameters, the form of its body, and of each reply."""
    raw = full["paths"][path][method]
    parameters = [resolve(full, one) for one in raw.get("parameters", [])]
    replies = {}
    for status, reply in raw["responses"].items():
        content = resolve(full, reply).get("content", {}).get("application/json", {})
        form = schema(full, schemas, content["schema"]) if "schema" in content else None
        replies[status] = {"schema": form, "example": example(full, content)}
    body = raw.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return {
        "method": method.upper(),
        "path": path,
        "parameters": [
            {
                "name": one["name"],
                "in": one["in"],
                "required": one.get("required", False),
                "schema": schema(full, schemas, one["schema"]),
            }
            for one in parameters
        ],
        "body": schema(full, schemas, body) if body else None,
        "replies": replies,
    }


def resolve(full: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """What a reference points at."""
    while "$ref" in node:
        target: Any = full
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


def example(full: dict[str, Any], content: dict[str, Any]) -> Any:
    """GitHub's first example of a reply, long lists cut."""
    for one in content.get("examples", {}).values():
        return cut(resolve(full, one).get("value"))
    return None


def cut(value: Any) -> Any:
    """An example with its lists cut."""
    if isinstance(value, list):
        return [cut(item) for item in value[:LISTED]]
    return {key: cut(item) for key, item in value.items()} if isinstance(value, dict) else value


def schema(full: dict[str, Any], schemas: dict[str, Any], node: Any) -> Any:
    """A schema of OpenAPI 3.0 as one of JSON Schema; what it refers to goes into `schemas`."""
    if isinstance(node, list):
        return [schema(full, schemas, item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = schema(full, schemas, resolve(full, node))
        return {"$ref": f"#/$defs/{name}"}
    plain = {}
    for key, value in node.items():
        if key == "properties":
            plain[key] = {name: schema(full, schemas, one) for name, one in value.items()}
        elif key not in WORDS_ONLY and key != "nullable" and not key.startswith("x-"):
            plain[key] = schema(full, schemas, value)
    return nullable(plain) if node.get("nullable") else plain


def nullable(plain: dict[str, Any]) -> dict[str, Any]:
    """A schema that null passes too."""
    return {"anyOf": [plain, {"type": "null"}]}


def allow_null(node: Any, name: str) -> bool:
    """Let the property `name` be null wherever it is defined below `node`; whether it was found."""
    found = False
    if isinstance(node, dict):
        properties = node.get("properties", {})
        if name in properties:
            properties[name] = nullable(properties[name])
            found = True
        found = sum(allow_null(one, name) for one in node.values()) > 0 or found
    if isinstance(node, list):
        found = sum(allow_null(one, name) for one in node) > 0
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
