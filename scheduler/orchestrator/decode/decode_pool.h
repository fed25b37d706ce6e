// DecodePool: the decode instances of one model, and the choice of one of them for a request.
// DecodePools: the pools of all models, as the registry's instances stand now. Part of
// OrchestratorCore; one thread.
//
// Room. A request opens with the blocks of its prompt and takes others as its tokens come
// (scheduler/worker/README.md). So an instance has room for it if that many blocks are free beyond
// those that it keeps for the growth of its requests (WorkerLoad::claimed_blocks). All its tokens
// must fit the whole pool. A member of a bound group that does not lead it has no room. At the lead
// the blocks are counted as if it were alone, although each rank keeps a part of the heads: it has
// room for more.
//
// Dedicated. The lead of a group that is bound for priority (Instance::dedicated) gets urgent
// requests, as long as it has room; others only if no other instance has any, or if it is more than
// kDedicatedReserve times as free as the freest of them.
//
// Virtual usage. Blocks of requests placed at an instance but not yet open in its last report count
// as used, so a burst of plans does not choose one instance. For a request whose lead asks, only
// those count whose leads are opening now (Instance::unreported minus those placed with the plan);
// the others may be behind it in a prefill queue. So a pool keeps two orders.
//
// Cost. A choice looks at the instances that changed since the last one, and at those that
// FreenessOrder::Pick looks at; never at the whole pool. When an instance came or went, its pool is
// read anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/placement/freeness_order.h"

namespace skein::scheduler {

class DecodePool {
 public:
  void Set(const Instance& instance);  // it is new, or changed

  struct Question {
    const RequestHead* spec = nullptr;
    const std::set<InstanceId>* tried = nullptr;  // under this epoch: never these
    const std::set<InstanceId>* old = nullptr;    // under earlier epochs: only if no other is left
    bool asked = false;                           // its lead asks; false: placed with its plan
    bool urgent = false;                          // it prefers dedicated instances
  };
  enum class Outcome {
    kPlaced,  // at `instance`
    kNoRoom,  // now
    kNone,    // no instance can ever take it
    kAllTried,
  };
  struct Choice {
    Outcome outcome = Outcome::kNone;
    InstanceId instance;
  };
  Choice Choose(const Question& question) const;

  static DecodeCandidate CandidateOf(const Instance& instance, bool asked);
  // It is here as it stands now, or drains and is not here.
  bool Knows(const Instance& instance) const;
  size_t size() const { return blocks_of_.size(); }
  absl::Status CheckInvariants() const;

 private:
  template <class Allows>
  std::optional<InstanceId> PickDedicated(const FreenessOrder& order, int64_t blocks,
                                          const Allows& allows) const;
  static DecodeCandidate RankedAs(const Instance& instance, bool asked);

  std::optional<HandoffShape> shape_;  // one in a model's pool
  // Those that do not drain; a candidate without room now has no free blocks.
  FreenessOrder with_plan_;
  FreenessOrder asked_;
  absl::btree_map<InstanceId, int64_t> blocks_of_;  // in all
  absl::btree_set<InstanceId> closed_;              // of these, by their bound group
  absl::btree_set<InstanceId> away_;  // of these, that take nothing: missed, suspect, set aside
  absl::btree_set<InstanceId> dedicated_;                    // of these
  absl::btree_set<std::pair<int64_t, InstanceId>> by_size_;  // the same
};

class DecodePools {
 public:
  explicit DecodePools(Registry* registry) : registry_(*registry) {}  // outlives this

  const DecodePool& Of(const std::string& model);
  // Each pool knows its instances, but for changes since the last Of.
  absl::Status CheckInvariants() const;

 private:
  struct Known {
    DecodePool pool;
    uint64_t version = 0;  // of the registry's pool
  };
  Registry& registry_;
  std::map<std::string, Known> pools_;  // by model
};

}  // namespace skein::scheduler
