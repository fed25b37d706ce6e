// Why a request was planned as it was: what `skeinctl explain` shows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/name_index.h"
#include "scheduler/orchestrator/explain/switch_explanation.h"

namespace skein::scheduler {

// Reasons why an answer comes later, or costs more, than planned.
enum class Degraded {
  kParked,         // no instance took it when it came, or its tenant's turn had not come
  kReplanned,      // a plan was cancelled and replaced
  kRecomputed,     // the same, after instances may have begun it (Request::MayHaveBegun)
  kDecodeRetried,  // its prefill instance could not reach the decode instance
  kDecodeFull,     // the decode instance had no room when the first chunk was about to start
  // It waited, because no decode instance could be named when its first chunk was about to start.
  kDecodeWaited,
  // KV went by a slower path than there is (slower_path.h); once for each instance's part.
  kHandoffHostMemory,
  kHandoffTcp,
  kHandoffStagingBuffer,
  kHandoffRetried,  // OpenTransfer or Commit was sent again, or Commit was never answered; likewise
  kRingHostMemory,  // the same of what instances that compute a prompt together exchange
  kUnclaimed,       // its router did not attach to the token stream in time
  kSubmittedAnew,   // the orchestrator that had accepted it was lost
  kResumed,         // instances of an attempt before this one were lost
  kMoved,           // it was submitted to another cell before: that was lost, or refused it
  kPreempted,  // its decode instance took its KV blocks away, and computed its tokens anew later
};
inline constexpr size_t kDegradedKinds = static_cast<size_t>(Degraded::kPreempted) + 1;
using DegradedCounts = std::array<uint64_t, kDegradedKinds>;
const char* NameOf(Degraded kind);  // as metrics and explanations write it

// The times of a plan count from its decision; -1: not yet.
struct ChunkExplanation {
  int64_t tokens = 0;
  std::vector<InstanceId> instances;  // by rank
  double estimated_start_s = 0;
  double estimated_end_s = 0;
  TimeUs started_us = -1;  // as reported
  TimeUs ended_us = -1;
  int tp = 1;  // they run it as (instances / tp, tp)
};

// The whole prompt as one chunk.
struct AlternativeExplanation {
  int sp = 0;
  double start_s = 0;
  double ttft_s = 0;
  std::string why;  // it was, or was not, chosen: TellWhy writes it
};

// How the KV of one instance's part of the prompt went to the decode instance.
struct HandoffExplanation {
  InstanceId prefill;
  HandoffPath path;
  std::string slower;  // why it took no faster path; "": none is known
};

// The path of what an instance exchanged with the others of its plan.
struct RingExplanation {
  InstanceId prefill;
  RingPath path;
};

struct PlanExplanation {
  // How the plan was chosen among the alternatives.
  enum class Choice { kSoonest, kFixedSize, kLater };  // kLater: chunk by chunk (rolling)

  Epoch epoch;
  TimeUs decided_us = 0;  // from the request's submission
  std::string how;        // the rule that decided
  double improvement_rate = 0;
  double ttft_s = 0;                                   // estimated
  std::vector<std::pair<InstanceId, double>> queue_s;  // of the pool
  std::vector<ChunkExplanation> chunks;
  Choice choice = Choice::kSoonest;
  std::vector<AlternativeExplanation> alternatives;  // by SP size
  InstanceId decode;                                 // took the blocks; 0: none yet
  // The bound group that it was placed in, led by that instance: its instances and epoch. 1 and 0:
  // that instance alone.
  int32_t formation = 1;
  uint64_t formation_epoch = 0;
  // False also where its KV went through staging buffers, in the layout of one instance: the lead
  // computes it alone.
  bool RunsInGroup() const {
    return formation_epoch != 0 &&
           std::none_of(handoffs.begin(), handoffs.end(),
                        [](const HandoffExplanation& one) { return one.path.staging_buffer; });
  }
  std::vector<HandoffExplanation> handoffs;  // of those that have told it
  std::vector<RingExplanation> rings;        // likewise
  // Of the decode instance's group while the request was there, from the number `switches_from` of
  // that instance on (switch_notes.h), in the order in which they began: the latest ones.
  uint64_t switches_from = 0;
  std::vector<SwitchExplanation> switches;
  uint64_t switches_left_out = 0;  // earlier ones
  uint32_t preemptions = 0;        // that the decode instance has told
  std::string lost;                // why it was given up, if it was
  // For traces. From the request's submission; -1: that never was.
  TimeUs waiting_us = -1;  // it began to wait for decode room
  TimeUs placed_us = -1;   // the decode instance took the blocks
  TimeUs lost_us = -1;     // it was given up
  uint32_t refusals = 0;   // by decode instances that were to take it
};

// Writes what only those who ask need: the texts of the alternatives, and TellMeanings.
void TellWhy(PlanExplanation* plan);
// What each of plan->switches meant for the request.
void TellMeanings(PlanExplanation* plan);

// Times count from the submission; -1: not yet.
struct Explanation {
  RequestId id;
  std::vector<std::string> names;  // as its client sees it
  std::string model;
  int64_t prompt_tokens = 0;
  std::string policy;
  std::string state;      // now, or how it ended
  TimeUs age_us = 0;      // since its submission
  TimeUs placed_us = -1;  // a decode instance was reserved
  // All KV was handed over. If this is reported only after the end, it counts as the time of the
  // first token or of the end.
  TimeUs prefilled_us = -1;
  TimeUs ended_us = -1;
  TimeUs first_token_us = -1;          // at the router
  int64_t output_tokens = -1;          // as the router counted them; -1: it has not said
  bool provisional = false;            // `state` waits for the router's report on the end
  DegradedCounts degraded = {};        // how often
  bool failed = false;                 // it ended by a failure, here, at a worker or at its router
  std::vector<PlanExplanation> plans;  // the latest last

  // `request` is one of its names, or its id as logs write it.
  bool Answers(const std::string& request) const;
  // Calls visit(name) with each name that it answers to.
  template <class Visit>
  void ForEachName(Visit visit) const {
    for (const std::string& name : names) visit(name);
    visit(ToString(id));
  }
};

// End states for a request that its router closed. At first only whether its KV was handed over is
// known.
inline constexpr char kCancelledByRouter[] = "cancelled by its router";
inline constexpr char kEndedByRouter[] = "ended by its router";
std::string CompletedBy(FinishReason reason);  // as the decode instance says
std::string TextOf(const RouterEnd& end);      // as the router reports it, which is authoritative

// The router's report on an ended request. Returns whether it failed, if no other report had said
// so.
bool TakeRouterEnd(const RouterEnd& end, Explanation* explanation);

// The instances that have not yet reported the end of a request that has ended.
struct AwaitedReports {
  Epoch epoch;
  std::set<InstanceId> prefill;  // the members whose part may be committed; all others' are
  InstanceId decode;
  bool empty() const { return prefill.empty() && decode == InstanceId{}; }
};

// Outcomes of a model's plans: how prompts were cut, and how good the estimates were. Counts plans
// whose KV was all handed over, when their request ends.
struct PlanTotals {
  std::map<size_t, uint64_t> plans_by_chunks;  // by the number of their chunks
  // By the number of their instances, and their tp.
  std::map<std::pair<size_t, int>, uint64_t> chunks_by_shape;
  // From the decision to the end of the last chunk, of plans that were made with a latency profile.
  double estimated_s = 0;
  double actual_s = 0;
  double error_s = 0;  // sum of the absolute differences

  void Count(const PlanExplanation& plan);
};

// The requests that ended last, and totals over all that ended.
class FinishedExplanations {
 public:
  explicit FinishedExplanations(size_t max) : max_(max) {}

  // `reports` is empty if no later report can add anything.
  void Add(TimeUs now, Explanation explanation, AwaitedReports reports);
  // `instance` is done with a request that has ended: it may tell that all KV was taken, and how a
  // request ended whose state is provisional.
  void TakeEnded(const EndedRequest& ended, InstanceId instance);
  // The end that the router reports. Ignored if the request is not kept any more. Returns whether
  // it failed, if no other report had said so.
  bool TakeRouterEnd(const RouterEnd& end);
  // Null if it is not kept any more. The pointer is valid until the next Add.
  Explanation* Find(RequestId id);
  // Appends those with that name, the latest first, until `out` has `limit` entries.
  void Find(const std::string& request, TimeUs now, size_t limit,
            std::vector<Explanation>* out) const;
  // Calls visit(submitted_us, explanation) for each, the latest end first.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (auto it = finished_.rbegin(); it != finished_.rend(); ++it) {
      visit(it->submitted_us, it->explanation);
    }
  }
  size_t size() const { return finished_.size(); }
  const std::map<std::string, PlanTotals>& totals() const { return totals_; }  // by model

  // At most `max` are kept, and each stored number belongs to one of them.
  absl::Status CheckInvariants() const;

 private:
  struct Finished {
    TimeUs submitted_us = 0;
    Explanation explanation;
  };
  // The request of that number is remembered.
  bool Remembers(uint64_t number, RequestId id) const;
  Explanation& At(uint64_t number) { return finished_[number - dropped_].explanation; }
  // Of one that was not known to be prefilled before.
  void CountIfPrefilled(const Explanation& explanation);

  size_t max_;
  std::deque<Finished> finished_;
  uint64_t dropped_ = 0;  // of all that were added
  struct Awaited {
    uint64_t number = 0;  // of all that were added
    AwaitedReports reports;
  };
  absl::btree_map<RequestId, Awaited> awaited_;   // of those in finished_
  absl::btree_map<RequestId, uint64_t> numbers_;  // the same, of all that were added
  NameIndex names_;                               // of these numbers
  std::map<std::string, PlanTotals> totals_;
};

}  // namespace skein::scheduler
