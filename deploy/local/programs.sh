# The programs of Skein, and how they are built for use: optimised and stamped with the commit. Sourced by deploy/local/up,
# deploy/images/build and deploy/package/build, after `top` was set to the checkout and machine.sh was sourced.

programs=(router orchestrator prefill_worker decode_worker skeinctl)
deployed=("${programs[@]}" skein-node)  # in packages and images

# The name under which program $1 is installed: router is skein-router, skeinctl keeps its name.
installed_name() {
  case "$1" in skein*) echo "${1//_/-}" ;; *) echo "skein-${1//_/-}" ;; esac
}

step() { printf '\n[%s] %s\n' "$(date +%T)" "$*"; }

# The folder of program $1 in the checkout and in Bazel's output.
folder_of() {
  case "$1" in skein-node) echo services/node ;; *) echo "services/$1" ;; esac
}

# The folder of CUDA's toolkit; nothing if no compiler is in it.
cuda_home() {
  local home=${CUDA_HOME:-/usr/local/cuda}
  if [ -x "$home/bin/nvcc" ]; then echo "$home"; fi
}

# Installs what the build needs, builds programs and puts them into a folder: steps 1 and 2 of as many as the caller has.
build_programs() {  # build_programs cpu|cuda DIR STEPS PROGRAM…
  local variant=$1 into=$2 steps=$3 configs=(--config=opt) progress=() jobs built program targets=()
  shift 3
  for program in "$@"; do targets+=("//$(folder_of "$program"):$program"); done
  jobs=$(build_jobs "$(machine_cores)" "$(machine_free_mib)")
  step "1/$steps dependencies"
  "$top/tools/install_deps" build || return
  step "2/$steps build, optimised, $jobs compilers at a time"
  if [ "$variant" = cuda ]; then configs+=(--config=cuda); fi
  [ -t 1 ] || progress=(--show_progress_rate_limit=15)
  built=$(
    cd "$top" || exit
    bazel build "${configs[@]}" --jobs="$jobs" --show_progress "${progress[@]}" --ui_event_filters=-info,-debug \
      "${targets[@]}" >&2 || exit
    bazel info "${configs[@]}" bazel-bin 2>/dev/null
  ) || return
  mkdir -p "$into" || return
  for program in "$@"; do install -m 755 "$built/$(folder_of "$program")/$program" "$into/$program" || return; done
}
