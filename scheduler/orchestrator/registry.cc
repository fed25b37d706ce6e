#include "scheduler/orchestrator/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

absl::Status CheckIdentity(const WorkerIdentity& identity) {
  const auto invalid = [](const char* field, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  };
  if (identity.model.empty()) return invalid("model", "empty");
  if (identity.endpoint.empty()) return invalid("endpoint", "empty");
  if (identity.incarnation.value == 0) return invalid("incarnation", "0");
  if (identity.shape.block_tokens < 1) return invalid("block_tokens", "below 1");
  if (identity.shape.num_layers < 1) return invalid("num_layers", "below 1");
  if (identity.total_blocks < 1) return invalid("num_blocks", "below 1");
  return absl::OkStatus();
}

// Prefill instances of one plan cut its chunks into pieces, each for itself: they must cut alike.
absl::Status CheckSamePieces(const WorkerIdentity& a, const WorkerIdentity& b) {
  const bool plan_together = a.role == Role::kPrefill && b.role == Role::kPrefill;
  if (!plan_together || a.max_batch_tokens == b.max_batch_tokens) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("max_batch_tokens: this worker ",
                                                    a.max_batch_tokens, ", its prefill instances ",
                                                    b.max_batch_tokens));
}

void Add(const Unreported& more, int64_t times, Unreported* sum) {
  sum->requests += times * more.requests;
  sum->blocks += times * more.blocks;
  sum->prompt_tokens += times * more.prompt_tokens;
}

}  // namespace

bool Instance::IsReported(RequestId request, Epoch epoch) const {
  const auto it = held.find({request, epoch});
  if (it == held.end()) return false;
  return identity.role == Role::kPrefill || it->second.opened;
}

void Instance::Count(const Placement& placement, int64_t times) {
  if (IsReported(placement.spec->id, placement.epoch)) return;
  const Unreported more = Of(*placement.spec);
  Add(more, times, &unreported);
  if (placement.announced) Add(more, times, &announced);
}

void Instance::Place(const SpecPtr& spec, Epoch epoch, bool announced_only) {
  Take(spec->id);
  const Placement& placement =
      placed.emplace(spec->id, Placement{epoch, spec, announced_only}).first->second;
  Count(placement, 1);
}

void Instance::Opened(RequestId request) {
  const auto it = placed.find(request);
  if (it == placed.end()) return;
  Count(it->second, -1);
  it->second.announced = false;
  Count(it->second, 1);
}

void Instance::Take(RequestId request) {
  const auto it = placed.find(request);
  if (it == placed.end()) return;
  Count(it->second, -1);
  placed.erase(it);
}

bool Instance::Drained() const {
  return load.draining && placed.empty() && held.empty() && load.running_requests == 0 &&
         load.queued_requests == 0 && load.held_blocks == 0;
}

Unreported Instance::Of(const RequestSpec& spec) const {
  const int64_t tokens = PromptTokens(spec);
  return {1, BlocksOf(identity.shape, tokens + spec.max_tokens), tokens};
}

void Instance::SetHeld(const std::vector<HeldRequest>& all) {
  held.clear();
  held_digest = HeldDigest();
  for (const HeldRequest& one : all) {
    if (held.insert_or_assign({one.id, one.epoch}, one).second) held_digest.Add(one.id, one.epoch);
  }
  CountUnreported();
}

void Instance::TakeHeld(const HeldRequest& one) {
  const auto it = placed.find(one.id);
  const bool counts = it != placed.end() && it->second.epoch == one.epoch;
  if (counts) Count(it->second, -1);
  if (held.insert_or_assign({one.id, one.epoch}, one).second) held_digest.Add(one.id, one.epoch);
  if (counts) Count(it->second, 1);
}

void Instance::DropHeld(RequestId request, Epoch epoch) {
  const auto it = placed.find(request);
  const bool counts = it != placed.end() && it->second.epoch == epoch;
  if (counts) Count(it->second, -1);
  if (held.erase({request, epoch}) > 0) held_digest.Remove(request, epoch);
  if (counts) Count(it->second, 1);
}

void Instance::CountUnreported() {
  unreported = announced = {};
  for (const auto& [request, placement] : placed) Count(placement, 1);
}

absl::Status Instance::CheckUnreported() const {
  Instance afresh = *this;
  afresh.CountUnreported();
  if (unreported == afresh.unreported && announced == afresh.announced) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the unreported load of instance ", id.value));
}

absl::StatusOr<Registry::Registration> Registry::Register(const RegisterRequest& hello,
                                                          CallId connection, TimeUs now) {
  absl::StatusOr<Registration> registration = FindOrAdd(hello.identity, connection, now);
  if (!registration.ok()) return registration;
  Instance& instance = instances_.at(registration->id);
  instance.reported = true;
  instance.avoid = false;
  instance.load = hello.load;
  instance.SetHeld(hello.held);
  return registration;
}

absl::StatusOr<Registry::Registration> Registry::FindOrAdd(const WorkerIdentity& identity,
                                                           CallId connection, TimeUs now) {
  if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
  Registration registration;
  for (auto& [id, instance] : instances_) {
    const bool same_process = instance.identity.incarnation == identity.incarnation;
    if (same_process && instance.identity.role == identity.role &&
        instance.identity.model == identity.model &&
        instance.identity.endpoint == identity.endpoint) {
      instance.heard_us = now;
      instance.lease_end_us = listening_.At(now) + lease_us_;
      registration.id = id;
      registration.former = std::exchange(instance.connection, connection);
      instance.succeeded = false;
      return registration;
    }
    if (instance.identity.endpoint == identity.endpoint) registration.replaced.push_back(id);
  }
  if (absl::Status status = CheckShape(identity); !status.ok()) return status;
  registration.id = InstanceId{next_id_++};
  Instance instance;
  instance.id = registration.id;
  instance.identity = identity;
  instance.connection = connection;
  instance.heard_us = instance.registered_us = now;
  instance.lease_end_us = listening_.At(now) + lease_us_;
  instances_.emplace(registration.id, std::move(instance));
  ++count_[static_cast<size_t>(identity.role)];
  ++version_;
  models_seen_.insert(identity.model);
  return registration;
}

// Against those that stay: an instance that this one replaces at its endpoint does not count.
absl::Status Registry::CheckShape(const WorkerIdentity& identity) const {
  for (const auto& [id, instance] : instances_) {
    if (instance.identity.model != identity.model) continue;
    if (instance.identity.endpoint == identity.endpoint) continue;
    absl::Status same =
        CheckSameShape(identity.shape, instance.identity.shape, "this worker", "its instances");
    if (same.ok()) same = CheckSamePieces(identity, instance.identity);
    if (same.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("model ", identity.model, ": ", std::string(same.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<Registry::Reported> Registry::Report(const ReportRequest& report, TimeUs now) {
  Instance* instance = Find(report.instance);
  if (instance == nullptr || instance->identity.incarnation != report.incarnation) {
    return absl::NotFoundError("instance: not known; register again");
  }
  instance->heard_us = now;
  instance->lease_end_us = listening_.At(now) + lease_us_;
  instance->avoid = false;
  instance->load = report.load;
  // What was withdrawn may be held again since: `held` comes last.
  for (const EndedRequest& one : report.ended) instance->DropHeld(one.id, one.epoch);
  for (const HeldRequest& one : report.gone) instance->DropHeld(one.id, one.epoch);
  if (report.full) {
    instance->SetHeld(report.held);
  } else {
    for (const HeldRequest& one : report.held) instance->TakeHeld(one);
  }
  return Reported{instance, instance->held_digest.value() == report.held_digest};
}

absl::Status Registry::Drain(const DrainRequest& request) {
  Instance* instance = Find(request.instance);
  if (instance == nullptr) {
    return absl::NotFoundError(absl::StrCat("instance ", request.instance.value, " is not known"));
  }
  const WorkerIdentity& identity = instance->identity;
  const auto pool = Pool(identity.model, identity.role);
  const bool another = std::any_of(pool.begin(), pool.end(), [&](const Instance* other) {
    return other != instance && other->Placeable();
  });
  if (!request.undo && !request.force && instance->Placeable() && !another) {
    return absl::FailedPreconditionError(
        absl::StrCat("instance ", request.instance.value, " is the last ",
                     identity.role == Role::kPrefill ? "prefill" : "decode",
                     " instance that serves model ", identity.model, ": its requests would fail"));
  }
  instance->drain_order = !request.undo;
  return absl::OkStatus();
}

void Registry::Remove(InstanceId id) {
  const auto it = instances_.find(id);
  if (it == instances_.end()) return;
  --count_[static_cast<size_t>(it->second.identity.role)];
  instances_.erase(it);
  ++version_;
}

Instance* Registry::Find(InstanceId id) {
  const auto it = instances_.find(id);
  return it == instances_.end() ? nullptr : &it->second;
}

void Registry::NoteSuccessor(Role role, const std::string& model) {
  for (auto& [id, instance] : instances_) {
    if (instance.identity.role != role || instance.identity.model != model) continue;
    if (instance.connected() || instance.succeeded) continue;
    instance.succeeded = true;
    return;
  }
}

Instance* Registry::FindConnected(CallId connection) {
  const auto it = std::find_if(instances_.begin(), instances_.end(), [connection](const auto& one) {
    return one.second.connection == connection;
  });
  return it == instances_.end() ? nullptr : &it->second;
}

const Instance* Registry::Find(InstanceId id) const {
  const auto it = instances_.find(id);
  return it == instances_.end() ? nullptr : &it->second;
}

std::vector<InstanceId> Registry::Listened(TimeUs now) {
  listening_.Listened(now);
  std::vector<InstanceId> dead;
  for (const auto& [id, instance] : instances_) {
    if (instance.lease_end_us <= listening_.elapsed()) dead.push_back(id);
  }
  return dead;
}

TimeUs Registry::NextTick() const {
  TimeUs end = kNever;
  for (const auto& [id, instance] : instances_) end = std::min(end, instance.lease_end_us);
  return listening_.NextTick(end);
}

std::vector<const Instance*> Registry::Pool(const std::string& model, Role role) const {
  std::vector<const Instance*> pool;
  for (const auto& [id, instance] : instances_) {
    if (instance.identity.model == model && instance.identity.role == role) {
      pool.push_back(&instance);
    }
  }
  return pool;
}

}  // namespace skein::scheduler
