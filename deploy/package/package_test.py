#!/usr/bin/env python3
"""Units, settings and the images' trees, held against the real programs. Nothing is installed.

SKEIN_TEST_PACKAGES=1 also builds packages and images from these programs, runs deploy/package/try and deploy/images/try (root,
some minutes, a Debian mirror), and fails unless a second build has the same bits.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "cluster"))
sys.path.insert(0, os.path.join(DEPLOY, "images"))
from cluster import binaries_from_argv, run_tests  # noqa: E402  pylint: disable=wrong-import-position
import libraries  # noqa: E402  pylint: disable=wrong-import-position
import sbom  # noqa: E402  pylint: disable=wrong-import-position

BINARIES = binaries_from_argv()
UNITS = os.path.join(HERE, "units")
SETTINGS = os.path.join(HERE, "etc")


def installed_name(program):
    return program if program.startswith("skein") else "skein-" + program.replace("_", "-")


PROGRAMS = {installed_name(name): path for name, path in BINARIES.items()}


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def flags_of(program):
    """{flag: default, or None} as --help says them."""
    text = subprocess.run([PROGRAMS[program], "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for flag, rest in re.findall(r"^  --([a-z0-9-]+)[^\n]*\n((?:      [^\n]*\n)*)", text, re.M):
        default = re.search(r"\[default\s+([^\];]+)", rest.replace("\n", " "))
        found[flag] = default.group(1).strip() if default else None
    assert "config" in found and len(found) > 8, (program, found)
    return found


def services():
    return sorted(name for name in os.listdir(UNITS) if name.endswith(".service"))


def settings_of(unit):
    """[(key, value)] of a unit file."""
    return re.findall(r"^([A-Za-z]+)=(.*)$", read(UNITS, unit), re.M)


def program_of(unit):
    return re.sub(r"@?\.service$", "", unit)


def each_role_has_a_unit_that_starts_it():
    roles = {name for name in PROGRAMS if name.startswith("skein-")}
    assert {program_of(unit) for unit in services()} == roles, (services(), roles)
    for unit in services():
        program = program_of(unit)
        command = dict(settings_of(unit))["ExecStart"].split()
        assert command[0] == "@PREFIX@/bin/" + program, command
        given = [word[2:] for word in command[1:] if word.startswith("--")]
        assert given == ["config"] and command[2] == "@CONF@/%s.yaml" % program[len("skein-"):], command
        assert os.path.exists(os.path.join(SETTINGS, command[2].rsplit("/", 1)[1])), command
        for key, value in settings_of(unit):
            if key == "Environment":
                flag = value.split("=")[0][len("SKEIN_"):].lower().replace("_", "-")
                assert flag in flags_of(program), "%s: %s: the program has no flag --%s" % (unit, value, flag)


def wanted_units_exist():
    wanted = dict(settings_of("skein.target"))["Wants"].split()
    assert {re.sub("@1", "@", one) for one in wanted} == set(services()), wanted


def stopping_waits_longer_than_the_drain():
    for unit in services():
        program = program_of(unit)
        stop_s = float(dict(settings_of(unit))["TimeoutStopSec"].rstrip("s"))
        file = read(SETTINGS, program[len("skein-"):] + ".yaml")
        drain = re.search(r"^drain-grace-s: (\S+)", file, re.M)
        default = flags_of(program).get("drain-grace-s")
        assert (drain is None) == (default is None), "%s: drain-grace-s belongs into its settings, as the unit's limit builds on it" % unit
        assert drain is None or stop_s >= float(drain.group(1)) + 8, (unit, stop_s, drain.group(1))


def the_router_stops_first_and_the_orchestrator_last():
    """systemd stops in the opposite order of starting: what a unit is After ends after it."""
    order = {unit: dict(settings_of(unit)) for unit in services()}
    for unit, settings in order.items():
        assert unit == "skein-orchestrator.service" or "skein-orchestrator.service" in settings["After"].split(), unit
        if unit.endswith("@.service"):
            assert "skein-router.service" in settings.get("Before", "").split(), "%s may end before the router's streams do" % unit


def units_are_confined():
    for unit in services():
        have = dict(settings_of(unit))
        for key, value in (("User", "skein"), ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("ProtectHome", "yes"),
                           ("CapabilityBoundingSet", ""), ("Restart", "on-failure"), ("RestartPreventExitStatus", "2"),
                           ("SystemCallFilter", "@system-service")):
            assert have.get(key) == value, "%s: %s is %r, not %r" % (unit, key, have.get(key), value)


def systemd_knows_every_word_of_the_units():
    tool = "/usr/bin/systemd-analyze"
    if not os.path.exists(tool):
        return "skip: systemd-analyze is not installed"
    with tempfile.TemporaryDirectory() as folder:
        for unit in os.listdir(UNITS):
            with open(os.path.join(folder, unit), "w", encoding="utf-8") as file:
                file.write(read(UNITS, unit).replace("@PREFIX@", "/usr").replace("@CONF@", "/etc/skein"))
        done = subprocess.run([tool, "verify", "--man=no", "--recursive-errors=no",
                               *[os.path.join(folder, unit.replace("@.", "@1.")) for unit in services()]],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": folder + ":/usr/lib/systemd/system"})
        complaints = [line for line in done.stdout.splitlines() if folder in line and "is not executable" not in line]
        assert not complaints, "\n".join(complaints)
    return None


def problems_of(program, config):
    """What the program says of a file of settings. The wrong port keeps it from starting and is the last line's neighbour."""
    done = subprocess.run([PROGRAMS[program], "--config", config, "--admin-port", "none"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env={}, timeout=30, check=False)
    assert done.returncode == 2, (program, done)
    lines = [line for line in done.stderr.splitlines() if ": error: " in line]
    assert any("--admin-port: 'none'" in line for line in lines), lines
    return [line for line in lines if "--admin-port" not in line]


def the_programs_take_the_settings():
    files = sorted(os.listdir(SETTINGS))
    assert ["skein-" + name[:-len(".yaml")] for name in files] == sorted(program_of(unit) for unit in services()), files
    with tempfile.TemporaryDirectory() as folder:
        for name in files:
            program = "skein-" + name[:-len(".yaml")]
            text = read(SETTINGS, name).replace("@PREFIX@", "/usr").replace("@CONF@", "/etc/skein")
            path = os.path.join(folder, name)
            # What is offered as a comment must be right, too.
            for content in (text, re.sub(r"^# ([a-z-]+: )", r"\1", text, flags=re.M)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                assert problems_of(program, path) == [], problems_of(program, path)
            with open(path, "a", encoding="utf-8") as file:
                file.write("no-such-key: 1\n")
            assert "no-such-key" in problems_of(program, path)[0], problems_of(program, path)


def the_bill_of_materials_is_whole_and_the_same_twice():
    program = PROGRAMS["skein-decode-worker"]
    found = libraries.closure([program])
    packages = {library.package.split(":")[0] for library in found}
    assert {"libc6", "libucx0", "libgrpc29", "libdnnl2"} <= packages and "" not in packages, packages
    files = [(program, "/usr/bin/skein-decode-worker", "skein")]
    files += [(library.source, "/lib/" + library.soname, library.package) for library in found]
    bill, again = (sbom.document("skein-test", "1.0", "abc", 1700000000, found, files) for _ in range(2))
    assert json.dumps(bill) == json.dumps(again)
    assert bill["spdxVersion"] == "SPDX-2.3" and bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    elements = [one["SPDXID"] for one in bill["packages"] + bill["files"]]
    assert len(set(elements)) == len(elements), "an identifier stands twice"
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in elements)
    for relation in bill["relationships"]:
        for end in ("spdxElementId", "relatedSpdxElement"):
            assert relation[end] in elements + ["SPDXRef-DOCUMENT"], relation
    for package in bill["packages"]:
        assert package["versionInfo"], package
        assert package["name"] == "skein" or package["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/debian/"), package
    for file in bill["files"]:
        assert [c["algorithm"] for c in file["checksums"]] == ["SHA1", "SHA256"], file
    for place in ("/usr/bin/skein-decode-worker", "/lib/libc.so.6"):
        assert any(file["fileName"] == "." + place for file in bill["files"]), place


def only_redistributable_libraries_of_cuda_are_taken():
    take = libraries._cuda_library  # pylint: disable=protected-access
    assert take("libcublasLt.so.13", "/x/libcublasLt.so.13").licence == "LicenseRef-NVIDIA-CUDA-EULA"
    assert take("libnccl.so.2", "/x/libnccl.so.2").licence == "BSD-3-Clause"
    try:
        take("libnvidia-secret.so.1", "/x/libnvidia-secret.so.1")
    except libraries.Unfit as problem:
        assert "libnvidia-secret.so.1" in str(problem)
    else:
        raise AssertionError("a library that is not on the list was taken")


def wrong_words_are_refused():
    missing = ["--bin", "/nonexistent"]
    for script, arguments, words in ((("images", "build"), ["--tag", "a b"], "--tag: 'a b'"), (("images", "build"), missing, "--bin: no program"),
                                     (("images", "build"), ["rocm"], "unknown argument 'rocm'"), (("package", "build"), missing, "--bin: no program"),
                                     (("package", "build"), ["rpm"], "unknown argument 'rpm'"), (("package", "try"), ["--from", "/nonexistent"], "--from:"),
                                     (("images", "try"), ["--from", "/nonexistent"], "--from:"), (("package", "install"), ["--prefix", "here"], "--prefix:")):
        done = subprocess.run([os.path.join(DEPLOY, *script), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1, (script, arguments, done)


def cuda_is_skipped_where_it_is_not():
    done = subprocess.run([os.path.join(DEPLOY, "images", "build"), "cuda"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, CUDA_HOME="/nonexistent"), timeout=60, check=False)
    assert done.returncode == 0 and "skipped: there is no nvcc in /nonexistent" in done.stdout.splitlines()[-1], done


def both_install_and_serve_on_a_clean_debian():
    if os.environ.get("SKEIN_TEST_PACKAGES") != "1":
        return "skip: takes minutes and a Debian mirror; SKEIN_TEST_PACKAGES=1 runs it"
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "bin"))
        node = [os.path.abspath(path) for path in sys.argv if os.path.basename(path) == "skein-node"]
        for path in list(BINARIES.values()) + node:
            os.symlink(path, os.path.join(folder, "bin", os.path.basename(path)))
        for kind in ("package", "images"):
            out = os.path.join(folder, kind)
            subprocess.run([os.path.join(DEPLOY, kind, "build"), "--bin", os.path.join(folder, "bin"), "--output-dir", out,
                            "--check-reproducible"], check=True)
            subprocess.run([os.path.join(DEPLOY, kind, "try"), "--from", out], check=True)
    return None


if __name__ == "__main__":
    run_tests(each_role_has_a_unit_that_starts_it, wanted_units_exist, stopping_waits_longer_than_the_drain,
              the_router_stops_first_and_the_orchestrator_last, units_are_confined,
              systemd_knows_every_word_of_the_units, the_programs_take_the_settings,
              the_bill_of_materials_is_whole_and_the_same_twice, only_redistributable_libraries_of_cuda_are_taken,
              wrong_words_are_refused, cuda_is_skipped_where_it_is_not, both_install_and_serve_on_a_clean_debian)
