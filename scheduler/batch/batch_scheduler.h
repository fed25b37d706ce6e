// BatchScheduler: which tokens the next step runs. A step is one ragged batch within a token
// budget; at most two are in flight, the one that runs and the one behind it. A step is planned as
// if all in flight had ended well: what it runs may be the token that the one before samples.
//
// Decode tokens come first; if there are too many, those of the least recently stepped sequences.
// Prefill slices fill the rest, fairly by tenant (fairness/fair_order.h) and of one tenant in plan
// order. So the prompt of a tenant that asks for less than its share is first in the next step that
// is planned, whatever prompts of other tenants are on the way: it waits for the end of the steps
// in flight, two at most. The step in which such a prompt ends is short: tenants that were given
// much more (kYieldsTokens) get nothing of it once a quarter of it is full. Steps are half as long
// while every prompt is of a tenant that was given much more (kHalvesTokens) than another tenant,
// which had a prompt here lately and may come back: so it will wait for less. While a prompt waits,
// decode tokens leave at least `min_slice_tokens` of the budget to prompts, so neither side
// starves. A sequence that must run alone gets its own steps: the prompts behind its prompt wait,
// and when it decodes it takes turns with the others. Prompts that are put last come behind all
// others, so they only fill what is left of a step.
//
// Invariants, by number:
//   1. 0 <= computed < known for every sequence, as of the end of the steps in flight; computed + 1
//      == known for a decoding one.
//   2. A step holds a sequence at most once and never exceeds the limits.
//   3. Prompts of one tenant advance in plan order, those that are put last behind the others: a
//      step that has no slice of a prompt has none of later ones.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/fairness/fair_order.h"

namespace skein::scheduler {

struct BatchLimits {
  int64_t max_batch_tokens = 512;
  int64_t max_batch_sequences = 64;
  int64_t max_slice_tokens = 512;  // limit of one prompt in one step
  int64_t min_slice_tokens = 64;   // part of the budget reserved for prompts while any waits
};

// Tokens [position, position + count) of a sequence; with `sample`, the token after them is
// sampled.
struct StepItem {
  RequestId id;
  int64_t position = 0;
  int64_t count = 0;
  bool sample = false;
  bool operator==(const StepItem&) const = default;
};

class BatchScheduler {
 public:
  explicit BatchScheduler(const BatchLimits& limits);

  // A sequence with `known` tokens (>= 1) of which `computed` have their KV. `alone`: it runs in
  // steps of its own. Priorities of owners are not looked at. REQUIRES: id unknown.
  void Add(RequestId id, PlanSequence order, int64_t known, int64_t computed, bool alone = false,
           const FairOwner& owner = {});
  // A prompt is put last, or is no longer. Unknown ids and decoding sequences are ignored.
  void PutLast(RequestId id, bool last);

  static constexpr PlanSequence kAll = {UINT64_MAX};
  // The next step; empty when there is nothing to run. With `before`: only prompts of smaller
  // sequences that are not put last. kAll: all prompts. Sequences with a sampled token become
  // decoding, with one more known token. REQUIRES: at most one step in flight. The step is in
  // flight until Complete.
  std::vector<StepItem> Plan(PlanSequence before = kAll);

  // `tokens` of a prompt were computed in a step that was not planned here; its tenant is charged.
  void Charge(const FairOwner& owner, int64_t tokens);

  // The first of the steps in flight has ended. The caller Removes the sequences that ended.
  void Complete();

  // The sequence is in no further step. Unknown ids are ignored.
  void Remove(RequestId id);

  // A sequence that is in further steps.
  bool Has(RequestId id) const { return sequences_.count(id) > 0; }
  bool HasPrompt(RequestId id) const { return Has(id) && !sequences_.at(id).decoding; }
  bool IsLast(RequestId id) const { return sequences_.at(id).last; }  // REQUIRES: HasPrompt(id)
  bool InFlight() const { return !in_flight_.empty(); }
  bool InFlight(RequestId id) const { return in_steps_.count(id) > 0; }
  // Its tokens, as of the end of the steps in flight. REQUIRES: Has(id).
  int64_t Known(RequestId id) const { return sequences_.at(id).known; }
  // Of a step that is planned now, whatever is in flight.
  int64_t StepTokens() const;
  int64_t Size() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t PendingPromptTokens() const { return pending_; }  // including the steps in flight
  absl::Status CheckInvariants() const;

 private:
  // As the priority of an owner: those put last stand behind the others.
  static int32_t PlaceIn(bool last) { return last ? -1 : 0; }
  struct Sequence {
    PlanSequence order;
    int64_t known = 0;
    int64_t computed = 0;
    bool decoding = false;
    uint64_t last_turn = 0;  // position in the order of the last steps
    bool alone = false;
    bool last = false;
    std::string tenant;
    int64_t weight = 1;

    FairOwner Owner() const { return {tenant, weight, PlaceIn(last)}; }
  };
  struct PromptKey {
    PlanSequence order;
    RequestId id;
    auto operator<=>(const PromptKey&) const = default;
  };
  struct Step {
    std::vector<StepItem> items;
    int64_t prompt_tokens = 0;
  };

  static bool IsBefore(const Sequence& sequence, PlanSequence before) {
    return before == kAll || (!sequence.last && sequence.order < before);
  }
  bool FirstPromptIsAlone(PlanSequence before) const;
  void PlanDecode(std::vector<StepItem>* step) const;
  // Tokens by weight. In a step in which a prompt of a tenant ends, a tenant that was given so much
  // more may fill only the first 1 / kYieldingPart.
  static constexpr int64_t kYieldsTokens = kFairCreditTokens / 4;
  static constexpr int64_t kYieldingPart = 4;
  // A tenant may come back within kAwaySteps of its last prompt here. Only the kAwayMax that left
  // last are remembered.
  static constexpr uint64_t kAwaySteps = 1024;
  static constexpr size_t kAwayMax = 8;
  // Nearly all the credit. Tenants that get the same in the long run are further apart for a small
  // part of the time only, and steps of half the tokens cost some throughput.
  static constexpr int64_t kHalvesTokens = kFairCreditTokens * 3 / 4;
  struct Away {
    std::string tenant;
    uint64_t since_step = 0;
  };

  void AddPrompt(const Sequence& sequence, RequestId id);
  void RemovePrompt(const Sequence& sequence, RequestId id);
  // That a step may have, if it has `used` already.
  int64_t TokensOfStep(int64_t used) const;

  void PlanPrompts(PlanSequence before, std::vector<StepItem>* step) const;
  void Advance(const StepItem& item, Step* step);
  absl::Status CheckSteps() const;

  BatchLimits limits_;
  std::map<RequestId, Sequence> sequences_;
  FairOrder<PromptKey> prompts_;                       // those not decoding, in order
  std::set<std::pair<uint64_t, RequestId>> decoding_;  // the others, by last turn
  std::map<std::string, int64_t> prompts_of_;          // how many each tenant has; none is 0
  std::deque<Away> away_;  // tenants that have none, the one that left last is the last
  uint64_t steps_ = 0;     // that were planned
  // Tokens of prompts that are not in a step, and of those that are in one in flight.
  int64_t pending_ = 0;
  std::deque<Step> in_flight_;         // in their order
  std::map<RequestId, int> in_steps_;  // of those in flight, how many have the sequence
  uint64_t turns_ = 0;
};

}  // namespace skein::scheduler
