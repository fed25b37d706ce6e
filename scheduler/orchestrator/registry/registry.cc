#include "scheduler/orchestrator/registry/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/kv/kv_digest.h"

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
  if (!FitsHeads(identity.shape.layout, identity.shape.kv_heads)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout.tp: ", identity.shape.layout.tp,
                     " does not fit kv_heads=", identity.shape.kv_heads));
  }
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

// After their shapes: a build may know of a difference that the shape does not show.
absl::Status CheckSameDigest(const WorkerIdentity& a, const WorkerIdentity& b) {
  if (a.kv_digest == 0 && b.kv_digest == 0) return absl::OkStatus();
  const auto digest_of = [](const WorkerIdentity& identity) {
    return identity.kv_digest == 0 ? KvDigest(identity.shape) : identity.kv_digest;
  };
  if (digest_of(a) == digest_of(b)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("kv_digest: this worker ", absl::Hex(digest_of(a)), ", its instances ",
                   absl::Hex(digest_of(b)), ": their builds do not lay out or compute KV alike"));
}

int64_t LargestSequenceOf(const std::vector<const Instance*>& instances) {
  int64_t largest = 0;
  for (const Instance* instance : instances) {
    const WorkerIdentity& identity = instance->identity;
    int64_t tokens = identity.total_blocks * TokensPerBlock(identity.shape);
    if (identity.max_positions > 0) tokens = std::min<int64_t>(tokens, identity.max_positions);
    largest = std::max(largest, tokens);
  }
  return largest;
}

}  // namespace

Registry::PoolOfRole& Registry::PoolOf(const Instance& instance) {
  return pools_[{instance.identity.model, instance.identity.role}];
}

const Registry::PoolOfRole* Registry::FindPool(const std::string& model, Role role) const {
  const auto it = pools_.find({model, role});
  return it == pools_.end() ? nullptr : &it->second;
}

void Registry::RenewLease(Instance& instance, TimeUs now) {
  instance.heard_us = now;
  instance.lease_end_us = listening_.At(now) + lease_us_;
  leases_.Set(instance.id, instance.lease_end_us);
  instance.spoke_us = listening_.At(now);
  if (instance.pool_spoke_us_ != nullptr) *instance.pool_spoke_us_ = instance.spoke_us;
  const bool reports_often = instance.identity.build.protocol.newest >= rule_.from_revision;
  if (rule_.silent_us > 0 && reports_often) {
    silences_.Set(instance.id, instance.spoke_us + rule_.silent_us * 2 / 3);
  }
  const bool was_missed = std::exchange(instance.missed, false);
  const bool was_quiet = std::exchange(instance.quiet, false);
  instance.silent = false;
  if (was_missed || was_quiet) Recount(instance);
}

// Those that have been silent for as long are no better place.
bool Registry::OthersServe(const Instance& instance) const {
  if (!OthersSpoke(instance)) return false;
  const WorkerIdentity& identity = instance.identity;
  return Counts(identity.model, identity.role).placeable > (instance.Placeable() ? 1 : 0);
}

std::vector<InstanceId> Registry::Silent() {
  std::vector<InstanceId> found;
  const TimeUs now_us = listening_.elapsed();
  while (const auto id = silences_.TakeDue(now_us)) {
    Instance& instance = instances_.at(*id);
    const TimeUs silent_at_us = instance.spoke_us + rule_.silent_us;
    instance.silent = now_us >= silent_at_us;
    const TimeUs again_us = now_us + std::max<TimeUs>(rule_.silent_us / 16, 1);
    silences_.Set(*id, instance.silent ? again_us : std::min(again_us, silent_at_us));
    const bool quiet = OthersServe(instance);
    if (std::exchange(instance.quiet, quiet) != quiet) Recount(instance);
    found.push_back(*id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void Registry::NoteDraining(Instance& instance, bool before) {
  if (instance.draining() != before) PoolOf(instance).drain_version = ++versions_;
}

void Registry::AwaitRouter(Instance& instance, TimeUs now) {
  const TimeUs end_us = listening_.At(now) + lease_us_ / 2;
  if (end_us <= instance.lease_end_us) return;
  instance.lease_end_us = end_us;
  leases_.Set(instance.id, end_us);
}

bool Registry::Miss(Instance& instance) {
  instance.lease_end_us = listening_.elapsed() + lease_us_ / 16;
  leases_.Set(instance.id, instance.lease_end_us);
  if (std::exchange(instance.missed, true)) return false;
  Recount(instance);
  return true;
}

void Registry::Heard(InstanceId instance, TimeUs now) {
  if (Instance* known = Find(instance)) RenewLease(*known, now);
}

absl::StatusOr<Registry::Registration> Registry::Register(const RegisterRequest& hello,
                                                          CallId connection, TimeUs now) {
  absl::StatusOr<Registration> registration = FindOrAdd(hello.identity, connection, now);
  if (!registration.ok()) return registration;
  Instance& instance = instances_.at(registration->id);
  instance.reported = true;
  instance.avoid = false;
  const bool drained = instance.draining();
  instance.load = hello.load;
  NoteDraining(instance, drained);
  instance.SetHeld(hello.held);
  Recount(instance);
  return registration;
}

absl::StatusOr<Registry::Registration> Registry::FindOrAdd(const WorkerIdentity& identity,
                                                           CallId connection, TimeUs now) {
  if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
  Registration registration;
  const auto there = at_endpoint_.find(identity.endpoint);
  for (const InstanceId id : there == at_endpoint_.end() ? std::set<InstanceId>{} : there->second) {
    Instance& instance = instances_.at(id);
    if (instance.identity.incarnation == identity.incarnation &&
        instance.identity.role == identity.role && instance.identity.model == identity.model) {
      RenewLease(instance, now);
      registration.id = id;
      registration.former = std::exchange(instance.connection, connection);
      by_connection_.erase(registration.former);
      by_connection_[connection] = id;
      instance.succeeded = false;
      PoolOf(instance).without_stream.erase(id);
      Recount(instance);
      return registration;
    }
    registration.replaced.push_back(id);
  }
  if (absl::Status status = CheckShape(identity); !status.ok()) return status;
  registration.id = InstanceId{next_id_++};
  Instance& instance = instances_[registration.id];
  instance.id = registration.id;
  instance.identity = identity;
  instance.connection = connection;
  instance.registered_us = now;
  RenewLease(instance, now);
  PoolOfRole& pool = PoolOf(instance);
  pool.instances.push_back(&instance);  // its id is the largest
  pool.largest_sequence = LargestSequenceOf(pool.instances);
  pool.blocks.largest = std::max(pool.blocks.largest, identity.total_blocks);
  pool.blocks.together += identity.total_blocks;
  pool.most_blocks.largest = std::max(pool.most_blocks.largest, pool.blocks.largest);
  pool.most_blocks.together = std::max(pool.most_blocks.together, pool.blocks.together);
  pool.version = pool.drain_version = ++versions_;
  instance.sums_ = &pool.sums;
  instance.changed_ = &pool.changed;
  instance.pool_spoke_us_ = &pool.spoke_us;
  pool.spoke_us = instance.spoke_us;
  Recount(instance);
  at_endpoint_[identity.endpoint].insert(instance.id);
  by_connection_[connection] = instance.id;
  ++count_[static_cast<size_t>(identity.role)];
  models_seen_.insert(identity.model);
  return registration;
}

// Against those that stay: an instance that this one replaces at its endpoint does not count. All
// of a role are alike already, so the first that stays stands for them.
absl::Status Registry::CheckShape(const WorkerIdentity& identity) const {
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    const PoolOfRole* pool = FindPool(identity.model, role);
    if (pool == nullptr) continue;
    const std::vector<const Instance*>& all = pool->instances;
    const auto other = std::find_if(all.begin(), all.end(), [&](const Instance* one) {
      return one->identity.endpoint != identity.endpoint;
    });
    if (other == all.end()) continue;
    const WorkerIdentity& first = (*other)->identity;
    absl::Status same = CheckSameShape(identity.shape, first.shape, "this worker", "its instances");
    if (same.ok()) same = CheckSameDigest(identity, first);
    if (same.ok()) same = CheckSamePieces(identity, first);
    if (same.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("model ", identity.model, ": ", std::string(same.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<Registry::Reported> Registry::Report(const ReportRequest& report, TimeUs now) {
  Instance* instance = Find(report.instance);
  if (instance == nullptr || instance->identity.incarnation != report.incarnation) {
    return absl::NotFoundError("instance: unknown; register again");
  }
  RenewLease(*instance, now);
  instance->avoid = false;
  const bool drained = instance->draining();
  instance->load = report.load;
  NoteDraining(*instance, drained);
  // What was withdrawn may be held again since: `held` comes last.
  for (const EndedRequest& one : report.ended) instance->DropHeld(one.id, one.epoch);
  for (const HeldRequest& one : report.gone) instance->DropHeld(one.id, one.epoch);
  if (report.full) {
    instance->SetHeld(report.held);
  } else {
    for (const HeldRequest& one : report.held) instance->TakeHeld(one);
  }
  Recount(*instance);
  return Reported{instance, instance->held_digest.value() == report.held_digest};
}

absl::Status Registry::Drain(const DrainRequest& request) {
  Instance* instance = Find(request.instance);
  if (instance == nullptr) {
    return absl::NotFoundError(absl::StrCat("instance ", request.instance.value, " is not known"));
  }
  const WorkerIdentity& identity = instance->identity;
  const bool is_last =
      instance->Placeable() && Counts(identity.model, identity.role).placeable == 1;
  if (!request.undo && !request.force && is_last) {
    return absl::FailedPreconditionError(
        absl::StrCat("instance ", request.instance.value, " is the last ",
                     identity.role == Role::kPrefill ? "prefill" : "decode",
                     " instance that serves model ", identity.model, ": its requests would fail"));
  }
  const bool drained = instance->draining();
  instance->drain_order = !request.undo;
  NoteDraining(*instance, drained);
  Recount(*instance);
  return absl::OkStatus();
}

void Registry::Remove(InstanceId id) {
  const auto it = instances_.find(id);
  if (it == instances_.end()) return;
  Instance& instance = it->second;
  PoolOfRole& pool = PoolOf(instance);
  pool.sums.Replace(instance.counted_, {});
  std::erase(pool.instances, &instance);
  std::erase(pool.changed, &instance);
  pool.largest_sequence = LargestSequenceOf(pool.instances);
  pool.blocks = BlocksOf(pool.instances);
  pool.without_stream.erase(id);
  pool.version = pool.drain_version = ++versions_;
  leases_.Remove(id);
  silences_.Remove(id);
  by_connection_.erase(instance.connection);
  const auto there = at_endpoint_.find(instance.identity.endpoint);
  there->second.erase(id);
  if (there->second.empty()) at_endpoint_.erase(there);
  --count_[static_cast<size_t>(instance.identity.role)];
  instances_.erase(it);
}

void Registry::Disconnect(Instance& instance) {
  by_connection_.erase(instance.connection);
  instance.connection = CallId{};
  PoolOf(instance).without_stream.insert(instance.id);
  Recount(instance);
}

void Registry::Avoid(Instance& instance) {
  instance.avoid = true;
  Recount(instance);
}

Instance* Registry::Find(InstanceId id) {
  const auto it = instances_.find(id);
  return it == instances_.end() ? nullptr : &it->second;
}

void Registry::NoteSuccessor(Role role, const std::string& model) {
  const auto pool = pools_.find({model, role});
  if (pool == pools_.end() || pool->second.without_stream.empty()) return;
  const auto oldest = pool->second.without_stream.begin();
  instances_.at(*oldest).succeeded = true;
  pool->second.without_stream.erase(oldest);
}

std::vector<InstanceId> Registry::Connected() const {
  std::vector<InstanceId> ids;
  for (const auto& [id, instance] : instances_) {
    if (instance.connected()) ids.push_back(id);
  }
  return ids;
}

Instance* Registry::FindConnected(CallId connection) {
  const auto it = by_connection_.find(connection);
  return it == by_connection_.end() ? nullptr : &instances_.at(it->second);
}

const Instance* Registry::Find(InstanceId id) const {
  const auto it = instances_.find(id);
  return it == instances_.end() ? nullptr : &it->second;
}

Placed Registry::PlacedAt(InstanceId decode, Epoch epoch) const {
  const WorkerIdentity& identity = instances_.at(decode).identity;
  return {epoch, decode, identity.endpoint, identity.incarnation};
}

std::vector<InstanceId> Registry::Listened(TimeUs now) {
  listening_.Listened(now);
  std::vector<InstanceId> expired;
  while (const auto id = leases_.TakeDue(listening_.elapsed())) expired.push_back(*id);
  std::sort(expired.begin(), expired.end());
  return expired;
}

TimeUs Registry::NextTick() const {
  return listening_.NextTick(std::min(leases_.Next(), silences_.Next()));
}

PoolView Registry::Pool(const std::string& model, Role role) const {
  static const auto* const none = new std::vector<const Instance*>;
  const PoolOfRole* pool = FindPool(model, role);
  return PoolView(pool == nullptr ? none : &pool->instances);
}

const PoolSums& Registry::Sums(const std::string& model, Role role) const {
  static const auto* const none = new PoolSums;
  const PoolOfRole* pool = FindPool(model, role);
  return pool == nullptr ? *none : pool->sums;
}

std::vector<const Instance*> Registry::TakeChanged(const std::string& model, Role role) {
  const auto pool = pools_.find({model, role});
  if (pool == pools_.end()) return {};
  for (Instance* instance : pool->second.changed) instance->change_noted_ = false;
  std::vector<const Instance*> changed(pool->second.changed.begin(), pool->second.changed.end());
  pool->second.changed.clear();
  return changed;
}

int64_t Registry::LargestSequence(const std::string& model) const {
  const PoolOfRole* pool = FindPool(model, Role::kDecode);
  return pool == nullptr ? 0 : pool->largest_sequence;
}

Registry::PoolBlocks Registry::BlocksOfPool(const std::string& model, Role role) const {
  const PoolOfRole* pool = FindPool(model, role);
  return pool == nullptr ? PoolBlocks{} : pool->blocks;
}

Registry::PoolBlocks Registry::BlocksOf(const std::vector<const Instance*>& pool) {
  PoolBlocks blocks;
  for (const Instance* instance : pool) {
    blocks.largest = std::max(blocks.largest, instance->identity.total_blocks);
    blocks.together += instance->identity.total_blocks;
  }
  return blocks;
}

Registry::PoolBlocks Registry::MostBlocksOfPool(const std::string& model, Role role) const {
  const PoolOfRole* pool = FindPool(model, role);
  return pool == nullptr ? PoolBlocks{} : pool->most_blocks;
}

uint64_t Registry::PoolVersion(const std::string& model, Role role) const {
  const PoolOfRole* pool = FindPool(model, role);
  return pool == nullptr ? 0 : pool->version;
}

uint64_t Registry::DrainVersion(const std::string& model, Role role) const {
  const PoolOfRole* pool = FindPool(model, role);
  return pool == nullptr ? 0 : pool->drain_version;
}

absl::Status Registry::CheckInvariants() const {
  const auto violated = [](InstanceId id, const char* what) {
    return absl::InternalError(absl::StrCat("Registry: instance ", id.value, " ", what));
  };
  std::map<PoolKey, PoolSums> sums;
  std::map<PoolKey, std::vector<const Instance*>> pools;
  size_t connected = 0;
  for (const auto& [id, instance] : instances_) {
    const PoolKey key{instance.identity.model, instance.identity.role};
    sums[key].Replace({}, instance.Part());
    pools[key].push_back(&instance);
    if (absl::Status status = instance.CheckPlaced(); !status.ok()) return status;
    if (leases_.Of(id) != instance.lease_end_us) {
      return violated(id, "has a lease end other than its timer's");
    }
    if (at_endpoint_.at(instance.identity.endpoint).count(id) == 0) {
      return violated(id, "is not found by its endpoint");
    }
    const bool waits = !instance.connected() && !instance.succeeded;
    if (waits != (pools_.at(key).without_stream.count(id) > 0)) {
      return violated(id, "expects a successor in one table but not in the other");
    }
    if (!instance.connected()) continue;
    ++connected;
    const auto connection = by_connection_.find(instance.connection);
    if (connection == by_connection_.end() || connection->second != id) {
      return violated(id, "is not found by its stream");
    }
  }
  if (connected != by_connection_.size()) {
    return absl::InternalError("Registry: a stream belongs to no instance");
  }
  for (const auto& [key, pool] : pools_) {
    const bool same = std::equal(pool.instances.begin(), pool.instances.end(), pools[key].begin(),
                                 pools[key].end());
    if (!same || pool.sums != sums[key] || pool.blocks != BlocksOf(pool.instances) ||
        pool.largest_sequence != LargestSequenceOf(pool.instances)) {
      return absl::InternalError("Registry: the counts are out of date for model " + key.first);
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
