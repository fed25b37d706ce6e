// skeinctl formation --verify: whether the members of a bound group work together, by what each
// member counts. A formation in name only would show in one of these numbers.
//
// Two members cannot be read at the same instant. The lead is read before the others and again
// after them, both times; so the number of steps that a member may have run meanwhile is known to
// within those that the lead ran between its two readings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"

namespace skein::services {

// What a member holds of the KV of its group's sequences.
struct BoundKv {
  double sequences = 0;     // that have blocks
  double blocks = 0;        // of these sequences, at this member
  double blocks_alone = 0;  // that one instance alone would hold for them
};

// One reading of a decode-worker's /metrics.
struct MemberNumbers {
  // Steps so far, by mode (docs/metrics.md, skein_engine_steps_total) and number of ranks.
  std::map<std::pair<std::string, int>, double> steps;
  std::map<std::pair<std::string, int>, double> step_tokens;  // that these steps ran
  std::map<int, double> comm_bytes;  // moved so far, by the number of ranks
  double held_blocks = 0;
  std::optional<BoundKv> bound;  // empty: it does not tell
  double cpu_seconds = 0;        // so far

  double Steps(const std::string& mode, int ranks) const;
  // Of steps of a bound group of `ranks`: in tp, sp and sp_tp mode.
  double GroupSteps(int ranks) const;
  double OwnSteps() const;
  double CommBytes(int ranks) const;
};

// INVALID_ARGUMENT: the text has no CPU time or no KV blocks, so it is not a decode-worker's.
absl::StatusOr<MemberNumbers> MemberNumbersFrom(const std::string& metrics);
// Asks the worker at this admin port ("HOST:PORT"), for at most 5 s. NOT_FOUND: it is none.
absl::StatusOr<MemberNumbers> ReadMember(const std::string& admin);

struct WatchedMember {
  uint64_t instance = 0;
  std::string name;                      // for people
  MemberNumbers first, last;             // at the begin and at the end
  absl::Status read = absl::OkStatus();  // of either
};

struct WatchedGroup {
  std::vector<WatchedMember> members;   // by rank; the lead's are its readings before the others'
  MemberNumbers lead_first, lead_last;  // the lead's, after the others'
  int kv_heads = 0;                     // of the model; 0: unknown
  double watched_s = 0;
};

enum class Verdict { kPassed, kFailed, kUnknown };
const char* NameOf(Verdict verdict);  // "passed", "failed", "unknown"

struct FormationCheck {
  std::string name;  // "steps", "bytes", "blocks", "part", "cpu"
  Verdict verdict = Verdict::kUnknown;
  std::string detail;  // for people
};

// The checks of one bound group.
struct FormationChecks {
  std::string group;
  std::string formation;
  uint64_t epoch = 0;
  std::vector<uint64_t> members;  // by rank
  std::vector<FormationCheck> checks;
};
// Failed: a check failed. Passed: all passed that could be made, and at least one was.
Verdict VerdictOf(const std::vector<FormationCheck>& checks);

// Pure. Within a bound group each member
//   steps   ran as many tp, sp and sp_tp steps as the lead, and more than none;
//   bytes   moved bytes of collectives;
//   blocks  holds as many blocks as the lead, within 20 % (at least 4 blocks);
//   part    holds its part of the blocks that one instance alone would hold for the group's
//           sequences: one of as many as there are members. Several members hold the same part if
//           the model has fewer KV heads: then it is one of as many as there are heads;
//   cpu     spent as much CPU time as the lead, within 20 %.
// Blocks and CPU time are compared only if no member ran steps of its own, whose sequences hold
// blocks too, and CPU time only if the lead spent a quarter of a second.
//
// The lead says what one instance alone would hold. A member may hold 20 % (at least 4 blocks) less
// or more, for what changed between the readings, and one block more for each sequence: its last
// block has room for as many tokens as several blocks of one instance alone. Where these are so
// many that a member which holds everything would pass, the part is unknown.
//
// A group that ran no step is idle: that is unknown, not failed. The error of a reading fails
// "steps".
std::vector<FormationCheck> CheckGroup(const WatchedGroup& group);

// The checks of formations that `now` does not have any more become unknown: their members were
// read while they changed. Pure.
void DropChanged(const v1::ListGroupsResponse& now, std::vector<FormationChecks>* checks);

// Reads the members of all formations of `groups` that stand bound for `watch_s` seconds, and
// checks each. `status` tells their admin ports.
std::vector<FormationChecks> Verify(const std::vector<v1::GroupStatus>& groups,
                                    const v1::StatusResponse& status,
                                    const std::map<uint64_t, std::string>& names, double watch_s);

}  // namespace skein::services
