# How the try scripts run containers: as root with runc and cgroupfs, which also work inside another container or a small
# virtual machine without systemd. Sourced; `try` is the script's name for messages.

install_podman() {
  local missing=() pair
  for pair in podman=podman runc=runc nsenter=util-linux curl=curl "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "$try: installing ${missing[*]}"
  apt-get update -qq
  env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Containers and images of their own, below $work: nothing of the machine's podman is seen or touched.
pod() {
  podman --root "$work/storage" --runroot "$work/run" --tmpdir "$work/tmp" --runtime runc --cgroup-manager cgroupfs \
    --events-backend file "$@"
}
limits=(--ulimit nofile=16384:16384 --ulimit nproc=16384:16384)

# Ends and removes all containers below $work, those that share another's network first, and $work itself.
remove_work() {
  local id
  for id in $(pod ps -aq 2>/dev/null); do pod rm -f -t 0 "$id" >/dev/null 2>&1 || true; done  # newest first
  for id in $(pod ps -aq 2>/dev/null); do pod rm -f -t 0 "$id" >/dev/null 2>&1 || true; done
  findmnt -rno TARGET | grep -F "$work/" | sort -r | xargs -r -n 1 umount || true
  rm -rf --one-file-system "$work"
}

# Runs a command of this machine in the network of container $1.
in_network_of() {
  local container=$1; shift
  nsenter --net="/proc/$(pod inspect --format '{{.State.Pid}}' "$container")/ns/net" "$@"
}

# Waits until http://127.0.0.1:8000/readyz in the network of container $1 is 200, at most $2 seconds.
await_ready() {
  local i
  for ((i = 0; i < $2 * 5; i++)); do
    if in_network_of "$1" curl -fsS -o /dev/null --max-time 2 http://127.0.0.1:8000/readyz 2>/dev/null; then return 0; fi
    sleep 0.2
  done
  return 1
}

ask_in() {  # ask_in CONTAINER: the model's demonstration; fails without an answer
  in_network_of "$1" "$top/deploy/local/ask" --url http://127.0.0.1:8000 --model fledgling --model-dir "$top/deploy/models/fledgling"
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }
seconds_since() { awk -v ms=$(($(now_ms) - $1)) 'BEGIN {printf "%.1f", ms / 1000}'; }
