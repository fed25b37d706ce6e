# Prometheus and Alertmanager beside a local cluster. Sourced by deploy/local/up and deploy/local/restart.
#
# Everything is in RUN_DIR/observe: prometheus.yml, alertmanager.yml, rules.yml, targets.json and
# Prometheus's data. The targets are the processes of local.json; Prometheus reloads them when the
# file changes.

# The targets of the cluster whose local.json is $1, as Prometheus's file_sd has them.
targets_of() {
  awk -v node="$(hostname)" '
    match($0, /"role": "[a-z]+"/) {role = substr($0, RSTART + 9, RLENGTH - 10)}
    match($0, /"admin": "[0-9.:]+"/) {
      printf "%s{\"targets\": [\"%s\"], \"labels\": {\"job\": \"skein-%s\", \"node\": \"%s\"}}", (count++ ? ",\n " : "["),
        substr($0, RSTART + 10, RLENGTH - 11), role, node
    }
    END {print (count ? "]" : "[]")}' "$1"
}

# Writes the targets anew, if the cluster of folder $1 is observed. $2: its local.json.
write_targets() {
  [ -d "$1/observe" ] || return 0
  targets_of "$2" >"$1/observe/targets.json.draft"
  mv "$1/observe/targets.json.draft" "$1/observe/targets.json"
}

# Writes what Prometheus and Alertmanager read. $1: the cluster's folder, $2: deploy/prometheus/rules.yml, $3: Alertmanager's port.
write_observe_files() {
  mkdir -p "$1/observe"
  cp "$2" "$1/observe/rules.yml"
  cat >"$1/observe/prometheus.yml" <<END
global: {scrape_interval: 5s, evaluation_interval: 15s}
rule_files: [rules.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:$3"]}]}]}
scrape_configs: [{job_name: skein, file_sd_configs: [{files: [targets.json], refresh_interval: 1m}]}]
END
  # Alerts are shown and not sent; add a receiver here.
  cat >"$1/observe/alertmanager.yml" <<END
route: {receiver: nobody, group_by: [alertname], group_wait: 5s}
receivers: [{name: nobody}]
END
}

# A free port: $1 or one of the next hundred.
free_port() {
  local port
  for ((port = $1; port < $1 + 100; port++)); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi
  done
  echo "no free port from $1 to $port" >&2
  return 1
}
