// SpPlans: the SP plans that a prefill-worker takes part in, and the order in which it runs their
// pieces. Part of PrefillCore, which says when a plan's request has its blocks and its place.
//
// Order. Pieces run strictly in (sequence, chunk, piece) order over all plans assigned here,
// started or not, where the chunks that an Assign brought have that Assign's sequence. So all
// instances run pieces in one order, and the first unfinished one can always run.
//
// Invariants (CheckInvariants, by PrefillCore's number):
//   7. Each sequence in the order is of a plan that still runs; each plan's own (sp_plan.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/prefill/sp_plan.h"

namespace skein::scheduler {

struct SpPlansConfig {
  Incarnation incarnation;  // of this process: its name among the members of a plan
  int64_t block_tokens = 16;
  int64_t rank_tokens_max = 512;  // of a member in one piece; the same at all
  int64_t total_blocks = 0;
};

class SpPlans {
 public:
  struct Turn {
    RequestId id;
    PlanSequence sequence;  // the piece's place among all that this instance runs
  };

  explicit SpPlans(const SpPlansConfig& config) : config_(config) {}

  // This instance as the plan names it. FAILED_PRECONDITION: it is no member.
  absl::StatusOr<InstanceId> SelfIn(const AssignRequest& assign) const;

  // The plan's first Assign. On an error nothing is stored. INVALID_ARGUMENT "chunks: …" or
  // "prompt_logprobs: …". REQUIRES: its request has no plan here.
  absl::Status Add(const AssignRequest& assign);
  // A later one. INVALID_ARGUMENT "chunks: …": nothing was added. REQUIRES: Find(id).
  absl::Status Extend(const AssignRequest& assign);
  // The piece of the plan that it entered was computed, here and by the others, or was given up.
  // `ok`: it counts. REQUIRES: Find(id).
  void Leave(RequestId id, const StepSequence& ran, bool ok);
  // Its pieces run here no more. Unknown plans are fine.
  void Stop(RequestId id);
  void Forget(RequestId id);  // likewise; it is not known any more

  SpPlan* Find(RequestId id);  // null: the request has none
  const SpPlan* Find(RequestId id) const;

  // The plan whose piece is next. Empty: none is known, or the next one belongs to a chunk that a
  // later Assign must bring first.
  std::optional<Turn> Next();

  // Of all plans that were not stopped. Kept up to date with each change, so that a report walks
  // over none.
  int64_t BlocksToCompute() const { return to_compute_; }

  absl::Status CheckInvariants() const;

 private:
  // Chunks [from, to) of a plan, to be computed at the place of the Assign that brought them.
  struct ChunkRange {
    RequestId id;
    int from = 0;
    int to = 0;
  };
  struct Entry {
    SpPlan plan;
    std::vector<PlanSequence> sequences;  // of its Assigns
    bool stopped = false;
    int64_t counted = 0;  // its part of to_compute_
  };

  void AddRange(const AssignRequest& assign);
  void Recount(Entry& entry);

  const SpPlansConfig config_;
  std::map<RequestId, Entry> plans_;
  std::map<PlanSequence, ChunkRange>
      order_;  // not yet computed here, of plans that were not stopped
  int64_t to_compute_ = 0;
};

}  // namespace skein::scheduler
