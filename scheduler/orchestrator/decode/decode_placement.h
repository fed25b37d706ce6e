// DecodePlacement: queues the requests that wait for a decode instance, and says which of them may
// get one. Part of OrchestratorCore.
//
// A request's decode instance is chosen and announced with its plan, if one has room. That takes no
// blocks: the plan's lead allocates them when its first chunk is about to start (it "opens" the
// transfer). A lead without a decode instance, or whose instance refused, asks for one. It then
// holds prefill blocks and waits here in its model's queue: those of a higher priority first,
// within a priority fairly by tenant, by the tokens of prompts (fairness/fair_order.h), and of one
// tenant in order of arrival, those whose TTFT can still be reached before others. A plain
// request's prompt is computed meanwhile, so that when it gets an instance, its blocks there are
// held for the handoff only. The members of an SP plan compute nothing before its transfer is open.
//
// What counts as room: decode_pool.h.
//
// Fairness. While a request waits in the queue, no plan of its model gets an instance. Only
// requests placed before it asked, which are finitely many, and those ahead of it in the queue can
// take room first; of other tenants these are as many as the bound of FairOrder allows. A request
// that is refused again keeps its number.
//
// No deadlock. Only opened requests hold decode room; what an unopened one has computed is in its
// prefill blocks. An opened plain request has its prefill blocks and waits for no other request, so
// it ends and frees its room. An SP plan waits, opened or
// not, for all older plans (by PlanSequence) at each of its members. So it may get an instance only
// when all of these have opened (MustWait): then everything it waits for, directly or not, has
// decode room and prefill blocks, and the oldest can run. Only the orchestrator knows this, so
// other SP plans get no instance until their lead asks. No request waits for announced requests:
// their virtual usage never blocks a queued request, except those whose leads are opening now, and
// these wait only for the network. A request whose lead is not asking now (it gave its prefill
// blocks to an older SP plan, or does so when its step has ended: prefill_core.h) blocks nobody in
// the queue.
//
// Cost. Only requests that may get an instance are tried: their leads ask, and no older plan was
// ahead of them when they were last tried. A request found behind an older plan is blocked until
// its own plan is the oldest at one of its instances. So an event costs the requests that it
// places, one that finds no room, and those that it unblocks or blocks.
//
// Invariants (CheckInvariants): no queue is empty; every request
// that is ready or blocked is in a queue; no instance has an empty set of unopened plans.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/fairness/fair_order.h"

namespace skein::scheduler {

// Whose request it is, and when it has to be placed to reach its goal (kNever: it has none).
struct DecodeClaim {
  std::string tenant;
  int64_t weight = 1;
  TimeUs latest_us = kNever;
};

class DecodePlacement {
 public:
  // ---- plans that have not opened their transfer, by instance ----

  void AddUnopened(InstanceId member, PlanSequence first) { unopened_[member].insert(first); }
  void RemoveUnopened(InstanceId member, PlanSequence first);
  // An older plan at this instance has not opened.
  bool MustWait(InstanceId member, PlanSequence first) const;
  using Unopened = std::map<InstanceId, absl::btree_set<PlanSequence>>;
  const Unopened& unopened() const { return unopened_; }

  // ---- the queues (lines), one for each model ----

  // A request's place in its line.
  struct Place {
    uint64_t number = 0;
    int32_t priority = 0;
    bool operator==(const Place&) const = default;
    bool operator<(const Place& other) const {
      if (priority != other.priority) return priority > other.priority;
      return number < other.number;
    }
  };
  uint64_t NextNumber() { return ++last_number_; }
  void Wait(const std::string& model, Place place, RequestId request, DecodeClaim claim = {});
  void Leave(const std::string& model, Place place);  // idempotent
  // It leaves, since it was placed: its tenant has had its turn, for so many tokens.
  void Serve(const std::string& model, Place place, int64_t tokens);
  // So many tenants have a request that may be tried, at this priority.
  size_t TenantsReady(const std::string& model, int32_t priority) const;
  bool SomeWait(const std::string& model) const { return lines_.count(model) > 0; }
  // Whether the first of them has this priority or a higher one.
  bool SomeWaitFrom(const std::string& model, int32_t priority) const {
    const auto line = lines_.find(model);
    return line != lines_.end() && line->second.all.begin()->first.priority >= priority;
  }
  // Whether its lead asks; ignored for a request that does not wait.
  void SetAsking(const std::string& model, Place place, bool asks);
  // The first request that may be tried now; empty: none may.
  std::optional<RequestId> FirstReady(const std::string& model, TimeUs now = 0);
  // The request must wait for an older plan; `first` is its own sequence. REQUIRES: it is ready.
  void Block(const std::string& model, Place place, PlanSequence first);
  enum class Standing { kAbsent, kNotAsking, kReady, kBlocked };
  Standing StandingOf(const std::string& model, Place place, RequestId request) const;
  size_t waiting() const;
  size_t WaitingOf(const std::string& model) const;
  // Calls visit(RequestId) with the first of each priority in each line.
  template <class Visit>
  void ForEachFirst(Visit visit) const {
    for (const auto& [model, line] : lines_) {
      for (auto it = line.all.begin(); it != line.all.end();) {
        visit(it->second.request);
        it = line.all.upper_bound({UINT64_MAX, it->first.priority});
      }
    }
  }

  // A queue may advance: its model's instances have room, or a plan opened or left. TakeChanged
  // gives the models noted since the last call that have a request to try.
  void NoteChange(const std::string& model) { changed_.insert(model); }
  std::vector<std::string> TakeChanged();

  absl::Status CheckInvariants() const;

 private:
  struct Waiter {
    RequestId request;
    DecodeClaim claim;
    PlanSequence blocked;  // its plan, if it is blocked; 0: it is not
  };
  struct Line {
    std::map<Place, Waiter> all;
    FairOrder<Place> ready;
  };
  static FairOwner OwnerOf(Place place, const Waiter& waiter) {
    return {waiter.claim.tenant, waiter.claim.weight, place.priority};
  }
  static void MakeReady(Line& line, Place place);
  void Unblock(PlanSequence first);

  Unopened unopened_;
  std::map<std::string, Line> lines_;                              // by model
  std::map<PlanSequence, std::pair<std::string, Place>> blocked_;  // model and place
  std::set<std::string> changed_;
  uint64_t last_number_ = 0;
};

}  // namespace skein::scheduler
