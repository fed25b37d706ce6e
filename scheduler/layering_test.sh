#!/bin/bash
# No target under scheduler/ may depend on anything but scheduler/ itself, absl and (tests) gtest: not
# on gRPC, protobuf, UCX, CUDA, the engine or the services (scheduler/README.md). Nor
# may a core see a clock, a thread, a lock, a file, the network, the environment or unordered iteration.
# The one thing that engine/ may name of scheduler/ is scheduler/vocabulary, which depends on absl only;
# services and proto it may not name at all.
set -uo pipefail
root=$(dirname "$(realpath "$1")")   # of scheduler/BUILD in the source tree
engine=$(dirname "$root")/engine
failures=0
fail() { echo "$1"; failures=$((failures + 1)); }

builds=$(find "$root" -name BUILD)
sources=$(find "$root" -name '*.h' -o -name '*.cc')
[ "$(wc -w <<<"$sources")" -ge 20 ] || fail "found too few sources under $root"

# Every label named in a BUILD file: by induction this bounds the transitive closure.
for build in $builds; do
  grep -ohE '"(@|//)[^"]*"' "$build" | tr -d '"' | sort -u | while read -r label; do
    case "$label" in
      //scheduler/*|//visibility:public|@absl|@gtest|@gtest_main) ;;
      *) echo "$build: $label" ;;
    esac
  done || true
done | grep . && fail "a target depends on another layer"

for source in $sources; do
  grep -HoE '^#include "[^"]*"' "$source" | grep -vE '"(scheduler|absl)/' || true
done | grep . && fail "a file includes another layer"

# The vocabulary: "@absl", its own files, in tests "@gtest_main".
grep -oHE '"(@|//|:)[^"]*"' "$root/vocabulary/BUILD" | tr -d '"' \
  | grep -vE ':(:[a-z0-9_]+|//visibility:public|@absl|@gtest|@gtest_main)$' \
  && fail "the vocabulary depends on something else than absl"
grep -oE '^#include "[^"]*"' "$root"/vocabulary/*.{h,cc} \
  | grep -vE '"(scheduler/vocabulary|absl)/' && fail "the vocabulary includes another folder"

[ "$(find "$engine" -name BUILD | wc -l)" -ge 20 ] || fail "found too few packages under $engine"
grep -roHE --include=BUILD --include='*.bzl' '"//(scheduler|services|proto)[^"]*"' "$engine" \
  | grep -vE '"//scheduler/vocabulary:[a-z0-9_]+"$' && fail "a target of the engine depends on another layer"
grep -rE '^#include "(scheduler|services|proto)/' "$engine" \
  | grep -vE '#include "scheduler/vocabulary/' && fail "a file of the engine includes another layer"

cores=$(grep -vE '_test\.cc$' <<<"$sources")
forbidden='<(chrono|ctime|time\.h|thread|mutex|shared_mutex|condition_variable|atomic|future|fstream|iostream|filesystem|random|unordered_map|unordered_set|sys/[a-z]+\.h|unistd\.h)>'
grep -nE "#include $forbidden" $cores && fail "a core includes what sans-io forbids"
grep -nE '\b(getenv|clock_gettime|std::rand|absl::Now|flat_hash_(map|set)|node_hash_(map|set))\b' $cores \
  && fail "a core calls what sans-io forbids"

[ "$failures" -eq 0 ] || exit 1
echo "ok: $(wc -w <<<"$builds") packages, $(wc -w <<<"$sources") files, and the engine's"
