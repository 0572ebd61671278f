// GitHub's own parser on action and workflow files: one JSON object for each file, its complaints in words.
//
//   node validate.bundle.cjs FILE...
//
// Bundled by tools/setup_actions.sh, since the packages import JSON in a way that Node 20 refuses.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { validate } from "@actions/languageservice";
import { TextDocument } from "vscode-languageserver-textdocument";

async function main(paths) {
  for (const path of paths) {
    const isAction = basename(path) === "action.yml";
    const uri = `file:///${isAction ? "action.yml" : `.github/workflows/${basename(path)}`}`;
    const document = TextDocument.create(uri, "yaml", 1, readFileSync(path, "utf8"));
    const found = await validate(document);
    console.log(JSON.stringify({ path, complaints: found.map((one) => `${one.range.start.line + 1}: ${one.message}`) }));
  }
}

main(process.argv.slice(2));
