#!/usr/bin/env python3
"""The command lines of the five programs before anything runs: help, version, errors at start, completion, man pages."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import binaries_from_argv, run_tests  # noqa: E402

SERVICES = ("router", "orchestrator", "prefill_worker", "decode_worker")
MODEL = {"router": ["--model=m=MODEL"], "orchestrator": [], "prefill_worker": ["--model=MODEL"],
         "decode_worker": ["--model=MODEL"]}


def run(name, *arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SKEIN_")}
    return subprocess.run([binaries_from_argv()[name], *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=120, check=False, env=dict(clean, **environment))


def commands():
    """skeinctl's commands, from its help."""
    return re.findall(r"^  ([a-z-]+)$", run("skeinctl", "--help").stdout, re.M)


def every_call():
    """For each program and command: its name as typed, and how to run it."""
    for name in SERVICES:
        yield name, (name,)
    for command in commands():
        yield "skeinctl " + command, ("skeinctl", command)


def help_and_version_are_answered_everywhere():
    assert "status" in commands() and "explain" in commands(), commands()
    for typed, call in every_call():
        for flag in ("--help", "-h"):
            done = run(*call, flag)
            assert done.returncode == 0 and not done.stderr and "\nUsage: " + typed in done.stdout, (typed, done)
            assert not re.search(r"--[a-z-]*_", done.stdout), done.stdout
        done = run(*call, "--version")
        assert done.returncode == 0 and not done.stderr, done
        assert re.match(r"(skein )?%s \d+\.\d+\.\d+ \(.*\)\n$" % typed, done.stdout), done
    for command in commands():
        assert run("skeinctl", "help", command).stdout == run("skeinctl", command, "--help").stdout, command


def help_does_not_depend_on_what_else_is_said():
    for typed, call in every_call():
        plain = run(*call, "--help").stdout
        assert run(*call, "--config=/nowhere", "--help", SKEIN_PORT="1", SKEINCTL_FORMAT="json").stdout == plain, typed
        assert "\n      Print this text and exit.\n" in plain, (typed, plain)  # and no default that was just parsed


def a_worker_lists_the_flags_of_its_role():
    prefill, decode = run("prefill_worker", "--help").stdout, run("decode_worker", "--help").stdout
    for flag in ("--handoff ", "--handoff-staging-buffers", "--lease-s", "--formation-own-share", "--emulated-decode-step-us"):
        assert flag in decode and flag not in prefill, flag
    for flag in ("--comm-path", "--max-slice-tokens"):
        assert flag in prefill and flag not in decode, flag


def assert_refused(program, done, *problems):
    """Exit code 2; on stderr a line of plain text for each problem; nothing on stdout. Log lines may come first."""
    assert done.returncode == 2 and not done.stdout, (program, done)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    for line in done.stderr.splitlines():
        if line.startswith("{"):
            assert json.loads(line)["level"] in ("info", "warning"), (program, line)
    errors = [line for line in lines if not line.startswith("Run '")]
    assert len(errors) == len(problems), (program, problems, done.stderr)
    for problem in problems:
        assert any(line.startswith("%s: error: %s" % (program, problem)) for line in errors), (problem, done.stderr)


def wrong_flags_are_refused_in_one_shape():
    for name in SERVICES:
        assert_refused(name, run(name, *MODEL[name], "--prot=1", "--port=x", "--admin_port=70000"),
                       "unknown flag '--prot'; did you mean '--port'?", "--port: 'x' is not a whole number",
                       "--admin-port: '70000' must be between 0 and 65535")
        assert_refused(name, run(name, *MODEL[name], SKEIN_PORT="y"), "SKEIN_PORT: 'y' is not a whole number")
        assert_refused(name, run(name, *MODEL[name], "stray"), "unexpected argument 'stray'")
        assert_refused(name, run(name, *MODEL[name], "--port"), "--port: needs a value")
        assert_refused(name, run(name, *MODEL[name], "--log-level=loud"), "--log-level: 'loud' is not one of debug,")
    for command in commands():
        assert_refused("skeinctl " + command, run("skeinctl", command, "a", "b", "c", "d", "--nope=1"),
                       *[error.split("error: ", 1)[1] for error in
                         run("skeinctl", command, "a", "b", "c", "d", "--nope=1").stderr.splitlines()[:-1]])
        assert "unknown flag '--nope'" in run("skeinctl", command, "--nope=1").stderr, command


def missing_flags_have_one_wording():
    for name in ("router", "prefill_worker", "decode_worker"):
        assert_refused(name, run(name), "--model is required")
    assert_refused("skeinctl explain", run("skeinctl", "explain"), "REQUEST is required")
    assert_refused("skeinctl plan", run("skeinctl", "plan"), "--profile is required")
    assert_refused("skeinctl fit", run("skeinctl", "fit"), "SAMPLES.csv is required")


def wrong_files_are_refused_in_one_shape():
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("prot: 1\n")
        for name in SERVICES:
            model = [flag.replace("MODEL", folder) for flag in MODEL[name]]
            assert_refused(name, run(name, *model, "--config=" + config),
                           "--config: '%s': unknown key 'prot'; did you mean 'port'?" % config)
            assert_refused(name, run(name, *model, "--config=/nowhere.yaml"), "--config: '/nowhere.yaml': cannot be read")
            if name != "orchestrator":  # a folder without a model
                done = run(name, *model, "--port=0")
                assert_refused(name, done, "")
                assert folder in done.stderr.splitlines()[-1], done.stderr
    assert_refused("orchestrator", run("orchestrator", "--port=0", "--profile=/nowhere"), "--profile: ")
    assert_refused("orchestrator", run("orchestrator", "--port=0", "--policy=fastest"), "--policy: 'fastest' is not")


def what_the_engine_refuses_names_the_flag():
    fledgling = "deploy/models/fledgling"
    for name in ("prefill_worker", "decode_worker"):
        def refused(problem, *flags, worker=name):
            assert_refused(worker, run(worker, *flags, "--port=0", "--admin-port=0"), problem)
        refused("--device: 'cuda:x' is not cuda:N with N from 0", "--device=cuda:x", "--model=" + fledgling)
        refused("--device: 'gpu' is not cpu, cuda:N or emulated", "--device=gpu", "--model=" + fledgling)
        refused("--model: '/nowhere': /nowhere/config.json: ", "--model=/nowhere")
        refused("--kv-gib: 0.0001 GiB are less than one KV block: one block takes ", "--model=" + fledgling, "--kv-gib=0.0001",
                "--block-tokens=4096")
        refused("--kv-gib: 60000 GiB and what the model needs beside them do not fit in memory: ", "--model=" + fledgling,
                "--kv-gib=60000")
        refused("--device-memory-gib: 0.001 GiB: device memory: 1073741 bytes, but the weights alone take ",
                "--model=" + fledgling, "--device-memory-gib=0.001")
    emulated = ["--device=emulated", "--served-name=m", "--emulated-vocab-size=10", "--port=0", "--admin-port=0"]
    assert_refused("prefill_worker", run("prefill_worker", *emulated, "--profile=/nowhere"),
                   "--profile: '/nowhere' is neither a built-in profile (llama3-8b-a100, llama3-70b-a100-tp4) nor a file")
    assert_refused("router", run("router", "--model=m=" + fledgling, "--port=0", "--admin-port=0", "--host=nohost"),
                   "--host: 'nohost' is not an IP address or localhost")
    assert_refused("router", run("router", "--model=m=/nowhere"), "--model: 'm=/nowhere': ")
    assert_refused("router", run("router", "--model=m=" + fledgling, "--port=0", "--admin-port=0", "--api-key-file=/nowhere"),
                   "--api-key-file: '/nowhere': cannot be read")


def profiles_are_refused_in_one_shape():
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.json")
        with open(profile, "w", encoding="utf-8") as f:
            f.write('{"sp": {"1": 3}}')
        for program, call in (("orchestrator", ("orchestrator", "--port=0")), ("skeinctl plan", ("skeinctl", "plan")),
                              ("skeinctl simulate", ("skeinctl", "simulate"))):
            assert_refused(program, run(*call, "--profile=/nowhere"), "--profile: '/nowhere' is neither a built-in profile")
            assert_refused(program, run(*call, "--profile=" + profile), "--profile: '%s': sp.1 is 3, not an object" % profile)


def a_mistyped_variable_is_a_warning_that_names_the_closest():
    done = run("router", "--model=m=/nowhere", SKEIN_MAX_BODY_BYTE="1", SKEIN_RUN_DIR="/x", SKEIN_SHARED="/y", SKEIN_NPM="/z")
    warnings = [json.loads(line) for line in done.stderr.splitlines() if '"level":"warning"' in line]
    assert [(w["variable"], w["closest"]) for w in warnings] == [("SKEIN_MAX_BODY_BYTE", "SKEIN_MAX_BODY_BYTES")], done.stderr
    done = run("skeinctl", "status", "--orchestrator=127.0.0.1:1", SKEINCTL_FROMAT="json", SKEIN_FORMAT="json")
    assert "skeinctl status: warning: SKEINCTL_FROMAT: no flag has this name; did you mean SKEINCTL_FORMAT?\n" in done.stderr, done
    assert "SKEIN_FORMAT" not in done.stderr, done


def commands_and_services_do_not_share_variables():
    # A pod's environment configures its service; skeinctl commands in it have other meanings for
    # --model and --policy.
    done = run("skeinctl", "plan", "--profile=llama3-8b-a100", "--help", SKEIN_POLICY="x")
    assert "SKEINCTL_POLICY" in done.stdout and "SKEIN_POLICY" not in done.stdout, done.stdout
    done = run("skeinctl", "simulate", "--profile=llama3-8b-a100", "--policy=nothing", SKEIN_RATE="x")
    assert "SKEIN_RATE" not in done.stderr, done
    for variable in ("SKEIN_ORCHESTRATOR", "SKEIN_API_KEY"):
        assert variable in run("skeinctl", "bench" if "KEY" in variable else "status", "--help").stdout, variable
    with tempfile.TemporaryDirectory() as folder:
        for command in ("status", "profile"):
            done = run("skeinctl", command, SKEIN_RUN_DIR=folder)
            assert_refused("skeinctl " + command, done, "no cluster found. Give --orchestrator HOST:PORT, set SKEIN_ORCHESTRATOR,")
            done = run("skeinctl", command, SKEIN_ORCHESTRATOR="127.0.0.1:1")
            assert done.returncode == (4 if command == "status" else 1), done


def a_dead_orchestrator_is_a_cluster_that_cannot_serve():
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "local.json"), "w", encoding="utf-8") as f:
        json.dump({"orchestrator": "127.0.0.1:1", "processes": [{"name": "orchestrator", "role": "orchestrator", "pid": 2 ** 30}]}, f)
        f.flush()
        for command, code in (("status", 4), ("requests", 1)):
            done = run("skeinctl", command, SKEIN_RUN_DIR=folder)
            assert done.returncode == code and "its orchestrator, pid 1073741824, is gone" in done.stderr, done
        done = run("skeinctl", "status", "--watch", "--count=1", SKEIN_RUN_DIR=folder)
        assert done.returncode == 4, done
        done = run("skeinctl", "logs", "--request=nothing", SKEIN_RUN_DIR=folder)
        assert done.returncode == 5 and "no log line has request 'nothing'" in done.stderr, done
        assert run("skeinctl", "logs", SKEIN_RUN_DIR=folder + "/none").returncode == 2


def a_port_in_use_is_refused_in_one_shape():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fledgling = "deploy/models/fledgling"
        emulated = ["--device=emulated", "--served-name=m", "--emulated-vocab-size=10", "--kv-gib=0.001"]
        flags = {"router": ["--model=" + fledgling], "orchestrator": [], "prefill_worker": emulated,
                 "decode_worker": emulated}
        for name in SERVICES:
            for flag, other in (("--port", "--admin-port"), ("--admin-port", "--port")):
                done = run(name, *flags[name], "%s=%d" % (flag, port), other + "=0")
                assert_refused(name, done, "%s: cannot listen on 127.0.0.1:%d: " % (flag, port))


def an_unknown_command_is_one_short_error():
    done = run("skeinctl", "statsu")
    assert_refused("skeinctl", done, "unknown command 'statsu'; did you mean 'status'?")
    assert len(done.stderr.splitlines()) == 2, done
    assert_refused("skeinctl", run("skeinctl", "help", "nothing"), "unknown command 'nothing'")
    assert_refused("skeinctl", run("skeinctl", "--format=json", "status"), "flags follow a command, as in")


def the_page_of_flags_is_what_the_programs_say():
    with open("docs/flags.md", encoding="utf-8") as f:
        page = f.read()
    assert page == run("skeinctl", "docs", "flags").stdout, \
        "docs/flags.md is stale: run  bazel run //services/skeinctl -- docs flags > docs/flags.md"


def every_help_is_a_sentence():
    for typed, call in every_call():
        for flag, text in re.findall(r"^  (-\S*.*)\n((?:      .*\n)+)", run(*call, "--help").stdout, re.M):
            words = " ".join(text.split()).rsplit(" [", 1)[0]
            # A sentence may start with a value: "cpu, cuda:N or emulated."
            assert words[0].isupper() or re.match(r"[a-zA-Z]+[,: ]", words), (typed, flag, words)
            assert words.endswith("."), (typed, flag, words)


def man_pages_are_valid_roff():
    groff = shutil.which("groff")
    if groff is None:
        return "skip: groff is not installed"
    with tempfile.TemporaryDirectory() as folder:
        done = run("skeinctl", "docs", "man", folder)
        assert done.returncode == 0, done
        pages = sorted(os.listdir(folder))
        assert {"skeinctl.1", "skeinctl-status.1", "skein-router.8"} <= set(pages), pages
        text = {}
        for page in pages:
            done = subprocess.run([groff, "-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u", os.path.join(folder, page)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
            assert done.returncode == 0 and not done.stderr, (page, done.stderr)
            assert "NAME" in done.stdout and "EXIT STATUS" in done.stdout, done.stdout
            text[page] = done.stdout
        assert "--max-body-bytes BYTES" in text["skein-router.8"], text["skein-router.8"]
    return None


def script(shell, folder):
    path = os.path.join(folder, "completion")
    with open(path, "w", encoding="utf-8") as f:
        f.write(run("skeinctl", "completion", shell).stdout)
    return path


def bash_completes():
    with tempfile.TemporaryDirectory() as folder:
        source = script("bash", folder)

        def complete(*words):
            # readline also splits at '='.
            line = [part for word in words for part in (re.split("(=)", word) if word.startswith("--") else [word])]
            line = [word for i, word in enumerate(line) if word or i == len(line) - 1]
            code = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _skein; printf "%s\\n" "${COMPREPLY[@]}"'
            done = subprocess.run(["bash", "-c", code, source, *line], stdout=subprocess.PIPE, universal_newlines=True,
                                  cwd=folder, check=True)
            return done.stdout.split()
        assert complete("skeinctl", "sta") == ["status"], complete("skeinctl", "sta")
        assert complete("skeinctl", "help", "expl") == ["explain"]
        assert complete("skeinctl", "status", "--orch") == ["--orchestrator"]
        assert complete("skeinctl", "status", "--format", "j") == ["json"]
        assert complete("skeinctl", "status", "--format=") == ["table", "json"]
        assert complete("skeinctl", "completion", "z") == ["zsh"]
        assert complete("/somewhere/router", "--max-b") == ["--max-body-bytes"]
        assert complete("decode_worker", "--handoff", "st") == ["staging"]
        assert complete("/usr/bin/skein-decode-worker", "--handoff", "st") == ["staging"]
        assert complete("prefill_worker", "--lease") == []
        assert complete("router", "--port-file", "comp") == ["completion"]
        assert complete("router", "--port", "") == []


def fish_completes():
    fish = shutil.which("fish")
    if fish is None:
        return "skip: fish is not installed"
    with tempfile.TemporaryDirectory() as folder:
        source = script("fish", folder)

        def complete(line):
            done = subprocess.run([fish, "--no-config", "-c", "source %s; complete -C '%s'" % (source, line)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, universal_newlines=True, check=True,
                                  env=dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder, XDG_DATA_HOME=folder))
            assert not done.stderr, done.stderr
            return [choice.split("\t")[0] for choice in done.stdout.splitlines()]
        assert complete("skeinctl sta") == ["status"], complete("skeinctl sta")
        assert complete("skeinctl status --orch") == ["--orchestrator"], complete("skeinctl status --orch")
        assert complete("skeinctl status --format j") == ["json"], complete("skeinctl status --format j")
        for name in ("router", "skein-router"):
            assert complete(name + " --max-b") == ["--max-body-bytes"], complete(name + " --max-b")
    return None


def zsh_completes():
    zsh = shutil.which("zsh")
    if zsh is None:
        return "skip: zsh is not installed"
    with tempfile.TemporaryDirectory() as folder:
        os.rename(script("zsh", folder), os.path.join(folder, "_skeinctl"))
        # Types the words into the shell's terminal, followed by a Tab.
        code = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; unset zle_bracketed_paste; fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D; print rea""dy'
zpty -r z out '*ready*'
zpty -w -n z "$1"$'\\t'
zpty -r z out "*$2*" && print found
zpty -d z
""" % folder

        def completes(line, result):
            try:
                done = subprocess.run([zsh, "-f", "-c", code, "zsh", line, result], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, universal_newlines=True, timeout=60, check=False,
                                      env=dict(os.environ, HOME=folder, TERM="dumb"))
            except subprocess.TimeoutExpired:
                return False
            return done.stdout.endswith("found\n")
        assert completes("skeinctl stat", "status")
        assert completes("skeinctl status --orch", "--orchestrator")
        assert completes("skeinctl status --format=j", "json")
        assert completes("router --max-b", "--max-body-bytes")
    return None


if __name__ == "__main__":
    run_tests(help_and_version_are_answered_everywhere, help_does_not_depend_on_what_else_is_said,
              a_worker_lists_the_flags_of_its_role, wrong_flags_are_refused_in_one_shape, missing_flags_have_one_wording,
              wrong_files_are_refused_in_one_shape, what_the_engine_refuses_names_the_flag,
              profiles_are_refused_in_one_shape, a_mistyped_variable_is_a_warning_that_names_the_closest,
              commands_and_services_do_not_share_variables, a_dead_orchestrator_is_a_cluster_that_cannot_serve, a_port_in_use_is_refused_in_one_shape,
              an_unknown_command_is_one_short_error, the_page_of_flags_is_what_the_programs_say, every_help_is_a_sentence,
              man_pages_are_valid_roff, bash_completes, fish_completes, zsh_completes)
