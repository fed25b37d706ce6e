#!/bin/bash
# install.sh: installs from Debian what deploy/kubernetes/try needs and is missing. Idempotent; root.
set -euo pipefail
need=(etcd-server containerd runc containernetworking-plugins iptables nftables conntrack dnsmasq-base busybox-static
  golang-1.19-go dpkg-dev make rsync buildah prometheus iproute2 procps curl openssl python3-yaml ca-certificates)
command -v kubectl >/dev/null || need+=(kubernetes-client)
missing=()
for p in "${need[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || { echo "packages: all present"; exit 0; }
echo "packages: installing ${missing[*]}"
# Debian starts the services that packages bring; here only the programs are wanted.
quiet=/usr/sbin/policy-rc.d
if [ ! -e $quiet ]; then
  printf '#!/bin/sh\nexit 101\n' >$quiet
  chmod +x $quiet
  trap 'rm -f $quiet' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
for service in etcd containerd prometheus; do systemctl disable "$service" >/dev/null 2>&1 || true; done
