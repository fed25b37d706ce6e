#!/bin/bash
# build.sh: builds the server programs of Kubernetes from Debian's source package, once.
#   build.sh CACHE     leaves the programs in CACHE/bin; a second call finds them there and does nothing
# Debian ships kubectl alone as a binary package; its source package holds the rest.
set -euo pipefail
cache=$1
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
all_built() { for p in "${programs[@]}"; do [ -x "$cache/bin/$p" ] || return 1; done; }
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
all_built && { echo "kubernetes: built before, in $cache/bin"; exit 0; }

# Only this call reads the list of sources, so the machine's own lists stay as they are.
lists=$cache/apt
mkdir -p "$lists/lists/partial" "$lists/src"
mirror=${SKEIN_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | sed -n 1p)}
[ -n "$mirror" ] || { echo "kubernetes: this machine's apt knows no mirror of bookworm; set SKEIN_DEBIAN_MIRROR" >&2; exit 1; }
printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s bookworm main\n' "$mirror" >"$lists/sources.list"
own=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists/lists"
  -o APT::Sandbox::User=root)
cd "$lists/src"
apt-get update -qq "${own[@]}"
apt-get source -qq "${own[@]}" kubernetes >/dev/null
cd kubernetes-*/
version=$(dpkg-parsechangelog -S Version | sed 's/^.*really//; s/-.*$//')
echo "kubernetes: building v$version with $(/usr/lib/go-1.19/bin/go version | cut -d' ' -f3); 8 minutes on 2 idle cores"
export PATH=/usr/lib/go-1.19/bin:$PATH HOME=$cache/home GOCACHE=$cache/gocache GOPATH=$PWD/.go GOFLAGS=-p=2
export CGO_ENABLED=0 KUBE_STATIC_OVERRIDES=kubelet KUBE_GIT_VERSION=v$version KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20
export KUBE_GIT_COMMIT=faecb196815e248d3ecfb03c680a4507229c2a56 KUBE_GIT_TREE_STATE=archive
mkdir -p "$HOME"
started=$SECONDS
make WHAT="${programs[*]/#/cmd/}" >"$cache/build.log" 2>&1 ||
  { tail -n 20 "$cache/build.log" >&2; echo "build.sh: the build failed; its log is $cache/build.log" >&2; exit 1; }
mkdir -p "$cache/bin"
for p in "${programs[@]}"; do install -m 755 "_output/local/bin/linux/amd64/$p" "$cache/bin/$p"; done
cd "$cache"
rm -rf "$lists" "$cache/gocache" "$cache/home"
echo "kubernetes: built in $((SECONDS - started)) s, in $cache/bin"
