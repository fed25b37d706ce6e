# The processes of a local cluster. Sourced by deploy/local/up, deploy/local/down and deploy/local/restart.
#
# up starts each process with SKEIN_UP="NAME RUN_DIR" in its environment and RUN_DIR as its working
# folder. down finds processes by these, even if pid files, binaries, logs or the folder are gone; a
# process without them is not ours.

# The path of the state file for the cluster in folder $1; skeinctl reads it.
state_file() {
  if [ -n "${SKEIN_RUN_DIR:-}" ]; then echo "$1/local.json"; else
    echo "${XDG_STATE_HOME:-$HOME/.local/state}/skein/local.json"
  fi
}

# The name of process $1 in the cluster of folder $2; nothing if it is not of that cluster or has ended.
name_of() {
  local value
  value=$(grep -az '^SKEIN_UP=' "/proc/$1/environ" 2>/dev/null | tr -d '\0') || true
  value=${value#SKEIN_UP=}
  [ -n "$value" ] || return 0
  if [ "${value#* }" = "$2" ] || [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$2" ]; then echo "${value%% *}"; fi
}

# Starts process $2 of the cluster in folder $1 with its command from $1/$2.command. Appends to its
# log.
start_process() {
  local command
  eval "command=($(cat "$1/$2.command"))"
  (cd "$1" && exec env -u SKEIN_API_KEY SKEIN_UP="$2 $1" setsid "${command[@]}") >>"$1/logs/$2.log" 2>&1 </dev/null &
  echo $! >"$1/$2.pid"
  disown
}

# "PID NAME" of each process of the cluster of folder $1.
processes_of() {
  local file pid name
  while read -r file; do
    pid=${file#/proc/} pid=${pid%/environ}
    name=$(name_of "$pid" "$1")
    [ -z "$name" ] || echo "$pid $name"
  done < <(grep -alz '^SKEIN_UP=' /proc/[0-9]*/environ 2>/dev/null)
}
