// Registry: the instances that are alive as far as the orchestrator knows, what they last said, and
// which requests it believes to be there. Part of OrchestratorCore.
//
// An instance that was silent for a lease, while the orchestrator listened (ListeningClock), is
// dead.
//
// All instances of one model name have one KV shape (model hash included): the first one alive
// fixes it, another one is refused by name. Its prefill instances besides have one
// max_batch_tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/listening_clock.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/placement/step_age.h"

namespace skein::scheduler {

// A request, as the orchestrator believes it to be at an instance.
struct Placement {
  Epoch epoch;
  SpecPtr spec;
};

// Of the requests that are placed at an instance but were not in its last report.
struct Unreported {
  int64_t requests = 0;
  int64_t blocks = 0;  // of prompt and output
  int64_t prompt_tokens = 0;
  bool operator==(const Unreported&) const = default;
};

struct Instance {
  InstanceId id;
  WorkerIdentity identity;
  WorkerLoad load;
  CallId connection;      // the stream of its worker; 0: it is broken
  bool reported = false;  // placeable only after its first report
  TimeUs heard_us = 0;
  TimeUs lease_end_us = 0;                // by the listening clock
  std::map<RequestId, Epoch> held;        // in its last report
  std::map<RequestId, Placement> placed;  // by Place and Take alone
  Unreported unreported;
  bool avoid = false;  // could not take an Assign since its last report
  TimeUs registered_us = 0;
  std::optional<bool> drain_order;  // an operator's

  bool draining() const { return load.draining || drain_order == true; }
  bool Suspect() const { return IsStepSuspect(load.step_age_us, load.step_estimate_us); }
  bool succeeded = false;  // another of its kind came after its stream broke
  bool connected() const { return connection != CallId{}; }
  bool Placeable() const {
    return connected() && reported && !draining() && load.invariants_ok && !Suspect();
  }
  // It may take requests, now or as soon as it reports or has room.
  bool Serves() const { return !draining() && load.invariants_ok; }
  bool HasRoom() const {
    return identity.max_requests == 0 ||
           static_cast<int64_t>(placed.size()) < identity.max_requests;
  }
  bool TakesAssigns() const { return Placeable() && !avoid && HasRoom(); }
  // It says itself that it drains, and has nothing left: nothing is lost when it is stopped.
  bool Drained() const;
  void Place(const SpecPtr& spec, Epoch epoch);
  void Take(RequestId request);  // it is not there, or no longer
  Unreported CountUnreported() const;

 private:
  Unreported Of(const RequestSpec& spec) const;
};

class Registry {
 public:
  Registry(uint64_t first_id, TimeUs lease_us)
      : next_id_(first_id), lease_us_(lease_us), listening_(lease_us) {}

  struct Registration {
    InstanceId id;
    std::vector<InstanceId> replaced;  // dead for sure: same endpoint, another process
    CallId former;  // the stream of this process that `connection` takes the place of; 0: none
  };
  // The same process registering again keeps its id. The caller Removes the replaced ones.
  absl::StatusOr<Registration> Register(const WorkerIdentity& identity, CallId connection,
                                        TimeUs now);

  // NOT_FOUND unless this process is registered under this id. Renews the lease.
  absl::StatusOr<Instance*> Report(const ReportRequest& report, TimeUs now);

  void Remove(InstanceId id);
  Instance* Find(InstanceId id);
  const Instance* Find(InstanceId id) const;
  // An instance came, and makes up for one that has no stream any more, if there is one.
  void NoteSuccessor(Role role, const std::string& model);
  std::vector<InstanceId> Connected() const;
  void NumberFrom(uint64_t first_id) { next_id_ = first_id; }
  Instance* FindConnected(CallId connection);  // null: the stream is no instance's
  // At a tick; who is dead. The caller Removes them.
  std::vector<InstanceId> Listened(TimeUs now);
  const ListeningClock& listening() const { return listening_; }
  TimeUs NextTick() const;  // when the next one is due

  // Those of the model's pool, by id.
  std::vector<const Instance*> Pool(const std::string& model, Role role) const;
  // Of the model's prefill instances.
  template <class Condition>
  bool AnyPrefill(const std::string& model, Condition condition) const {
    for (const auto& [id, instance] : instances_) {
      const WorkerIdentity& identity = instance.identity;
      if (identity.role == Role::kPrefill && identity.model == model && condition(instance)) {
        return true;
      }
    }
    return false;
  }
  // NOT_FOUND: there is no such instance. FAILED_PRECONDITION: it is the last one of its model and
  // role that requests can be placed at.
  absl::Status Drain(const DrainRequest& request);
  const std::set<std::string>& models_seen() const { return models_seen_; }
  bool KnowsModel(const std::string& model) const { return models_seen_.count(model) > 0; }
  const std::map<InstanceId, Instance>& instances() const { return instances_; }
  int64_t Count(Role role) const { return count_[static_cast<size_t>(role)]; }
  uint64_t version() const { return version_; }  // another one when an instance came or went

 private:
  absl::Status CheckShape(const WorkerIdentity& identity) const;

  uint64_t next_id_;
  TimeUs lease_us_;
  ListeningClock listening_;
  uint64_t version_ = 1;
  std::map<InstanceId, Instance> instances_;
  std::array<int64_t, 2> count_ = {};  // by role
  std::set<std::string> models_seen_;
};

}  // namespace skein::scheduler
