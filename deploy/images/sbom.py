"""The bill of materials of an image, as SPDX 2.3 in JSON: Skein, the libraries beside it and those compiled into it."""
import datetime
import hashlib
import re
from urllib.parse import quote

from libraries import Unfit, debian_status

# Packages whose code is inside Skein's programs, since they are headers or were linked statically.
COMPILED_IN = ("libboost1.74-dev", "libcli11-dev", "nlohmann-json3-dev", "libstdc++-12-dev")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def _identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def _package(name, version, supplier, purl="", licence="NOASSERTION", comment=""):
    made = {"SPDXID": _identifier("Package-" + name), "name": name, "versionInfo": version, "supplier": supplier,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence, "copyrightText": "NOASSERTION"}
    if purl:
        made["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    if comment:
        made["comment"] = comment
    return made


def _debian(name, comment):
    status = debian_status(name)
    plain = status["Package"]
    purl = "pkg:deb/debian/%s@%s?arch=%s&distro=debian-12" % (quote(plain), quote(status["Version"], safe="~"),
                                                              status["Architecture"])
    return _package(plain, status["Version"], "Organization: Debian", purl,
                    comment="%s Its licence: /usr/share/doc/%s/copyright." % (comment, plain))


def _file(path, name, licence="NOASSERTION"):
    return {"SPDXID": _identifier("File-" + name), "fileName": "." + name, "licenseConcluded": "NOASSERTION",
            "licenseInfoInFiles": [licence], "copyrightText": "NOASSERTION",
            "checksums": [{"algorithm": "SHA1", "checksumValue": _sha1(path)},
                          {"algorithm": "SHA256", "checksumValue": sha256(path)}]}


def _sha1(path):
    with open(path, "rb") as file:
        return hashlib.sha1(file.read()).hexdigest()


def document(name, version, revision, epoch, libraries, files):
    """`libraries` as closure() gives them; `files`: [(path, name in the image, package)], package "skein" for Skein's own.

    The same input gives the same text: the time is `epoch`, and the namespace is made from the content.
    """
    packages = [_package("skein", version, "NOASSERTION", licence="Apache-2.0", comment="Commit %s." % (revision or "unknown"))]
    relations = []
    for one in sorted({library.package for library in libraries if library.package}):
        packages.append(_debian(one, "Shared libraries in the image."))
        relations.append(("SPDXRef-Package-skein", "DEPENDS_ON", packages[-1]["SPDXID"]))
    for one in COMPILED_IN:
        try:
            packages.append(_debian(one, "Compiled into Skein's programs."))
        except Unfit as problem:  # programs that were built elsewhere: say what is known
            packages.append(_package(one, "", "Organization: Debian", comment="Compiled into Skein's programs; %s" % problem))
        relations.append(("SPDXRef-Package-skein", "STATIC_LINK", packages[-1]["SPDXID"]))
    for library in libraries:
        if not library.package:
            packages.append(_package(library.soname, _version_of(library.source), "Organization: NVIDIA", licence=library.licence,
                                     comment="Copied from the CUDA toolkit of the machine that built the image."))
            relations.append(("SPDXRef-Package-skein", "DEPENDS_ON", packages[-1]["SPDXID"]))
    listed = []
    for path, place, package in files:
        listed.append(_file(path, place, "Apache-2.0" if package == "skein" else "NOASSERTION"))
        relations.append((_identifier("Package-" + package.split(":")[0]), "CONTAINS", listed[-1]["SPDXID"]))
    namespace = hashlib.sha256(repr((name, version, revision, epoch, packages, listed)).encode()).hexdigest()
    made = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "documentNamespace": "urn:skein:spdx:%s:%s" % (name, namespace[:32]),
        "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: skein deploy/images/build"]},
        "packages": packages, "files": listed,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": "SPDXRef-Package-skein"}] +
                         [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }
    if any(library.licence.startswith("LicenseRef") for library in libraries):
        made["hasExtractedLicensingInfos"] = [{
            "licenseId": "LicenseRef-NVIDIA-CUDA-EULA", "name": "NVIDIA CUDA Toolkit End User License Agreement",
            "extractedText": "https://docs.nvidia.com/cuda/eula/", "seeAlsos": ["https://docs.nvidia.com/cuda/eula/"]}]
    return made


def _version_of(path):
    found = re.search(r"\.so\.([0-9.]+)$", path)
    return found.group(1) if found else ""
