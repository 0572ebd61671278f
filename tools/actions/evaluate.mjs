// GitHub's own expression evaluator: reads one JSON object from each line, answers with one.
//
//   {"texts": {"name": "literal ${{ expression }}"}, "contexts": {"inputs": {}}, "status": {"success": true}}
import { createInterface } from "node:readline";
import { Evaluator, Lexer, Parser, data } from "@actions/expressions";

const { BooleanData, Dictionary, StringData } = data;
const STATUS = ["always", "success", "failure", "cancelled"];

function toData(value) {
  if (value === null || typeof value !== "object") {
    return typeof value === "boolean" ? new BooleanData(value) : new StringData(String(value ?? ""));
  }
  return new Dictionary(...Object.entries(value).map(([key, inner]) => ({ key, value: toData(inner) })));
}

function evaluate(expression, contexts, status) {
  const info = STATUS.map((name) => ({ name, minArgs: 0, maxArgs: 0 }));
  const functions = new Map(info.map((one) => [one.name, { ...one, call: () => new BooleanData(one.name === "always" || status[one.name]) }]));
  const { tokens } = new Lexer(expression).lex();
  const tree = new Parser(tokens, Object.keys(contexts), info).parse();
  return new Evaluator(tree, toData(contexts), functions).evaluate().coerceString();
}

for await (const line of createInterface({ input: process.stdin })) {
  const { texts, contexts, status } = JSON.parse(line);
  const answers = {};
  for (const [name, text] of Object.entries(texts)) {
    answers[name] = text.replace(/\$\{\{(.*?)\}\}/gs, (_, inner) => evaluate(inner, contexts, status));
  }
  console.log(JSON.stringify(answers));
}
