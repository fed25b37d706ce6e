# The resources that this process may use, cgroups included. Sourced by deploy/local/up; MiB and
# whole numbers throughout.

# The folders of this process's cgroup of controller $1 and of its parents, innermost first. A container often sees its own
# cgroup as the root; a folder that is not there is left out by those who read.
cgroup_folders() {
  local controller=$1 mount=/sys/fs/cgroup path
  path=$(sed -n 's/^0:://p' /proc/self/cgroup)
  if [ ! -f $mount/cgroup.controllers ]; then
    mount=$mount/$controller
    path=$(sed -nE "s/^[0-9]+:([^:]*,)?$controller(,[^:]*)?://p" /proc/self/cgroup)
  fi
  while [ -n "$path" ] && [ "$path" != / ]; do
    echo "$mount$path"
    path=${path%/*}
  done
  echo $mount
}

# Cores: the affinity of this process, less if its cgroup has a quota. At least 1.
machine_cores() {
  local cores quota period folder
  cores=$(nproc)
  while read -r folder; do
    quota='' period=''
    if [ -f "$folder/cpu.max" ]; then read -r quota period <"$folder/cpu.max"; fi
    if [ -f "$folder/cpu.cfs_quota_us" ]; then quota=$(cat "$folder/cpu.cfs_quota_us") period=$(cat "$folder/cpu.cfs_period_us"); fi
    if [[ $quota =~ ^[0-9]+$ ]] && [ $((quota / period)) -lt "$cores" ]; then cores=$((quota / period)); fi
  done < <(cgroup_folders cpu)
  echo $((cores > 0 ? cores : 1))
}

# Bytes of memory that cgroup folder $1 may still take, its page cache counted as free; nothing if it has no limit.
cgroup_free_bytes() {
  local limit used cache
  if [ -f "$1/memory.max" ]; then
    limit=$(cat "$1/memory.max") used=$(cat "$1/memory.current")
    cache=$(awk '$1 == "file" {c = $2} $1 == "shmem" {s = $2} END {print c - s}' "$1/memory.stat")
  elif [ -f "$1/memory.limit_in_bytes" ]; then
    limit=$(cat "$1/memory.limit_in_bytes") used=$(cat "$1/memory.usage_in_bytes")
    cache=$(awk '$1 == "total_cache" {c = $2} $1 == "total_shmem" {s = $2} END {print c - s}' "$1/memory.stat")
  fi
  if [[ ${limit:-} =~ ^[0-9]+$ ]] && [ ${#limit} -lt 18 ]; then echo $((limit - used + cache)); fi
}

# Memory that is free or only caches files.
machine_free_mib() {
  local mib bytes folder
  mib=$(($(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo) / 1024))
  while read -r folder; do
    bytes=$(cgroup_free_bytes "$folder")
    if [ -n "$bytes" ] && [ $((bytes >> 20)) -lt "$mib" ]; then mib=$((bytes >> 20)); fi
  done < <(cgroup_folders memory)
  echo $((mib > 0 ? mib : 0))
}

# Compilers at a time: one for each core, as long as each has a GiB beside Bazel's own.
build_jobs() {  # build_jobs CORES FREE_MIB
  local jobs=$((($2 - 1024) / 1024))
  if [ $jobs -gt "$1" ]; then jobs=$1; fi
  echo $((jobs > 1 ? jobs : 1))
}

# Threads of each of so many workers that share the cores.
worker_threads() {  # worker_threads CORES WORKERS
  echo $(($1 / $2 > 1 ? $1 / $2 : 1))
}

# KV memory of each worker: half of what the weights (which all workers map together) and the processes leave free, shared
# by the workers; from 16 MiB to 4 GiB.
worker_kv_mib() {  # worker_kv_mib FREE_MIB WEIGHTS_MIB WORKERS
  local mib=$((($1 - $2 - 256 - 64 * $3) / 2 / $3))
  if [ $mib -gt 4096 ]; then mib=4096; fi
  echo $((mib > 16 ? mib : 16))
}
