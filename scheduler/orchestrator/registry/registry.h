// Registry: the live instances as the orchestrator knows them, their last reports, and the requests
// recorded as placed there. Part of OrchestratorCore.
//
// An instance that was silent for a lease, while the orchestrator listened (ListeningClock), is
// dead, or, if routers hear it, missed: it stays, and the question comes up again soon. Before
// that, one that was silent for two thirds of `silent_us` is quiet, if another of its pool can be
// placed at and has spoken a third of `silent_us` later or more: it gets nothing new. From
// `silent_us` on it is silent. Its next word ends both.
//
// All instances of one model name have one KV shape (model hash included) and one KV digest; the
// first live one fixes them, and a different one is refused, naming the field. Its prefill
// instances also share one max_batch_tokens.
//
// Only CheckInvariants walks over all instances. Pool totals needed by decisions are updated when
// an instance changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/listening_clock.h"
#include "scheduler/base/looks.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/orchestrator/registry/instance.h"

namespace skein::scheduler {

// The instances of one model and role, by id. Holds until an instance comes or goes.
class PoolView {
 public:
  using Instances = std::vector<const Instance*>;
  explicit PoolView(const Instances* instances) : instances_(*instances) {}

  size_t size() const { return instances_.size(); }
  bool empty() const { return instances_.empty(); }
  const Instance* front() const { return instances_.front(); }
  // A walk: not for each event (looks.h).
  Instances::const_iterator begin() const {
    SKEIN_LOOKED(instances_.size());
    return instances_.begin();
  }
  Instances::const_iterator end() const { return instances_.end(); }

 private:
  const Instances& instances_;
};

class Registry {
 public:
  // Workers that speak this revision of the protocol (peer_build.h) report every sixth of a lease,
  // older ones every third.
  static constexpr uint32_t kReportsOften = 1;

  struct SilenceRule {
    TimeUs silent_us = 0;  // 0: no instance is quiet or silent
    // Instances that speak older revisions are neither: they report too seldom.
    uint32_t from_revision = 0;
  };
  Registry(uint64_t first_id, TimeUs lease_us, const SilenceRule& rule)
      : next_id_(first_id), lease_us_(lease_us), rule_(rule), listening_(lease_us) {}
  Registry(uint64_t first_id, TimeUs lease_us) : Registry(first_id, lease_us, SilenceRule{}) {}

  struct Registration {
    InstanceId id;
    std::vector<InstanceId> replaced;  // dead for sure: same endpoint, another process
    CallId former;  // the stream of this process that `connection` takes the place of; 0: none
  };
  // The same process registering again keeps its id. The caller Removes the replaced ones.
  absl::StatusOr<Registration> Register(const RegisterRequest& hello, CallId connection,
                                        TimeUs now);

  struct Reported {
    Instance* instance = nullptr;
    bool digest_fits = true;  // what the worker holds is what it told
  };
  // NOT_FOUND unless this process is registered under this id. Renews the lease.
  absl::StatusOr<Reported> Report(const ReportRequest& report, TimeUs now);

  void Remove(InstanceId id);
  Instance* Find(InstanceId id);
  const Instance* Find(InstanceId id) const;
  // What routers and prefill instances need to reach the decode instance `decode`. REQUIRES
  // that it is registered.
  Placed PlacedAt(InstanceId decode, Epoch epoch) const;
  // Any message of its stream renews its lease: under load, its reports wait behind others.
  void Heard(InstanceId instance, TimeUs now);
  // A router was told to attach there: it gets half a lease to say whether it hears the instance.
  void AwaitRouter(Instance& instance, TimeUs now);
  // Its lease expired, and it stays. True: it was not missed before. Any message of its stream ends
  // it. REQUIRES: Listened named it.
  bool Miss(Instance& instance);
  void Disconnect(Instance& instance);  // its stream broke
  void Avoid(Instance& instance);       // it gets no Assign until its next report
  void Recount(Instance& instance) { instance.Recount(); }
  // An instance registered and replaces one without a stream, if any.
  void NoteSuccessor(Role role, const std::string& model);
  std::vector<InstanceId> Connected() const;
  void NumberFrom(uint64_t first_id) { next_id_ = first_id; }
  Instance* FindConnected(CallId connection);  // null: no instance has this stream
  // At a tick; whose lease has expired. The caller Removes them, or Misses them.
  std::vector<InstanceId> Listened(TimeUs now);
  // The same, after Listened: of instances that are quiet or silent now. Each is named again, a
  // sixteenth of `silent_us` later, until its next word.
  std::vector<InstanceId> Silent();
  // Others of its pool have spoken since it fell silent. If all have been silent for as long, as
  // where the machine of all of them stands still, its silence says nothing of it.
  bool OthersSpoke(const Instance& instance) const {
    return *instance.pool_spoke_us_ >= instance.spoke_us + rule_.silent_us / 3;
  }
  const ListeningClock& listening() const { return listening_; }
  TimeUs NextTick() const;  // when the next one is due

  PoolView Pool(const std::string& model, Role role) const;
  const PoolSums& Sums(const std::string& model, Role role) const;
  const PoolCounts& Counts(const std::string& model, Role role) const {
    return Sums(model, role).counts;
  }
  // The instances of the pool that changed since the last call, for the one caller that keeps an
  // index of the pool. When PoolVersion has changed, any instance may have changed.
  std::vector<const Instance*> TakeChanged(const std::string& model, Role role);
  // Tokens of the longest sequence that one decode instance of the model can hold.
  int64_t LargestSequence(const std::string& model) const;
  // KV blocks of the model's pool: of the largest instance, and of all together.
  struct PoolBlocks {
    int64_t largest = 0;
    int64_t together = 0;
    bool operator==(const PoolBlocks&) const = default;
  };
  PoolBlocks BlocksOfPool(const std::string& model, Role role) const;
  // The most that there were of each since the registry was made.
  PoolBlocks MostBlocksOfPool(const std::string& model, Role role) const;
  // Another number when an instance of the pool came or went.
  uint64_t PoolVersion(const std::string& model, Role role) const;
  // The same, and when one began or ended to drain.
  uint64_t DrainVersion(const std::string& model, Role role) const;
  // NOT_FOUND: there is no such instance. FAILED_PRECONDITION: it is the last one of its model and
  // role that requests can be placed at.
  absl::Status Drain(const DrainRequest& request);
  const std::set<std::string>& models_seen() const { return models_seen_; }
  bool KnowsModel(const std::string& model) const { return models_seen_.count(model) > 0; }
  // A walk, as in PoolView.
  const std::map<InstanceId, Instance>& instances() const {
    SKEIN_LOOKED(instances_.size());
    return instances_;
  }
  int64_t Count(Role role) const { return count_[static_cast<size_t>(role)]; }
  size_t streams() const { return by_connection_.size(); }  // that stand
  // INTERNAL if a count or an index does not agree with the instances.
  absl::Status CheckInvariants() const;

 private:
  struct PoolOfRole {
    std::vector<const Instance*> instances;  // by id
    std::vector<Instance*> changed;          // since TakeChanged
    TimeUs spoke_us = 0;                     // the last word of any, by the listening clock
    PoolSums sums;
    int64_t largest_sequence = 0;  // tokens that the roomiest of them can hold
    PoolBlocks blocks;
    PoolBlocks most_blocks;
    std::set<InstanceId> without_stream;  // and without a successor
    uint64_t version = 1;
    uint64_t drain_version = 1;
  };
  using PoolKey = std::pair<std::string, Role>;

  absl::StatusOr<Registration> FindOrAdd(const WorkerIdentity& identity, CallId connection,
                                         TimeUs now);
  absl::Status CheckShape(const WorkerIdentity& identity) const;
  static PoolBlocks BlocksOf(const std::vector<const Instance*>& pool);
  PoolOfRole& PoolOf(const Instance& instance);
  const PoolOfRole* FindPool(const std::string& model, Role role) const;
  void RenewLease(Instance& instance, TimeUs now);
  bool OthersServe(const Instance& instance) const;
  void NoteDraining(Instance& instance, bool before);

  uint64_t next_id_;
  TimeUs lease_us_;
  const SilenceRule rule_;
  ListeningClock listening_;
  uint64_t versions_ = 1;  // given so far
  std::map<InstanceId, Instance> instances_;
  std::map<PoolKey, PoolOfRole> pools_;  // a pool stays when it has no instance
  std::map<std::string, std::set<InstanceId>> at_endpoint_;
  std::map<CallId, InstanceId> by_connection_;
  TimerQueue<InstanceId> leases_;      // by the listening clock
  TimerQueue<InstanceId> silences_;    // likewise
  std::array<int64_t, 2> count_ = {};  // by role
  std::set<std::string> models_seen_;
};

}  // namespace skein::scheduler
