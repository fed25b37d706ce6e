#include "scheduler/orchestrator/prefill/prefill_pools.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/plan/tensor_groups.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr double kEstimateMaxS = 24 * 3600;  // of what is told to workers

}  // namespace

void PrefillPools::ReplaceTables(const PlanningTables& tables, const std::string& model) {
  if (!model.empty()) {
    own_tables_[model] = tables;
    if (Pool* const pool = Known(model)) pool->planner.ReplaceTables(tables);
    return;
  }
  auto planning = std::make_shared<PlanningConfig>(*planning_);
  planning->tables = tables;
  own_tables_.clear();
  for (auto& [name, pool] : pools_) pool.planner.ReplaceTables(tables);
  planning_ = std::move(planning);  // for pools to come
}

const PlanningTables& PrefillPools::TablesOf(const std::string& model) const {
  const auto own = own_tables_.find(model);
  return own == own_tables_.end() ? planning_->tables : own->second;
}

PrefillPools::Pool* PrefillPools::Known(const std::string& model) {
  const auto it = pools_.find(model);
  return it == pools_.end() ? nullptr : &it->second;
}

PrefillPools::Pool* PrefillPools::Of(const std::string& model, const RequestTable& requests) {
  if (!plans()) return nullptr;
  Pool* pool = Known(model);
  const uint64_t version = registry_.PoolVersion(model, Role::kPrefill);
  if (pool == nullptr) {
    // An instance without such an address cannot compute together with others.
    const PoolView instances = registry_.Pool(model, Role::kPrefill);
    const bool any = std::any_of(instances.begin(), instances.end(), [](const Instance* instance) {
      return !instance->identity.comm_address.empty();
    });
    if (!any) return nullptr;
    pool = &pools_.emplace(model, Pool{PoolPlanner(planning_)}).first->second;
    if (own_tables_.contains(model)) pool->planner.ReplaceTables(TablesOf(model));
  }
  if (pool->version != version) {
    LayOut(pool, model, requests);
    pool->version = version;
  }
  return pool->instances.empty() ? nullptr : pool;
}

void PrefillPools::LayOut(Pool* pool, const std::string& model, const RequestTable& requests) {
  std::vector<std::pair<std::string, InstanceId>> by_label;
  int64_t block_tokens = 1;
  for (const Instance* instance : registry_.Pool(model, Role::kPrefill)) {
    block_tokens = TokensPerBlock(instance->identity.shape);
    if (instance->identity.comm_address.empty()) continue;
    by_label.emplace_back(instance->identity.node, instance->id);
  }
  pool->planner.SetLayout(scheduler::LayOut(std::move(by_label), planning_->node_size),
                          block_tokens);
  const std::vector<InstanceId>& slots = pool->planner.layout().slots;
  pool->slot_of.clear();
  pool->instances.clear();
  pool->takes.clear();
  pool->least_blocks = std::numeric_limits<int64_t>::max();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const Instance* instance = registry_.Find(slots[slot]);
    pool->slot_of[slots[slot]] = static_cast<int>(slot);
    pool->instances.push_back(instance);
    pool->takes.push_back(instance != nullptr && instance->TakesAssigns() ? 1 : 0);
    if (instance == nullptr) continue;
    pool->least_blocks = std::min(pool->least_blocks, instance->identity.total_blocks);
  }
  std::vector<TimelineChunk> chunks =
      pool->version == 0 ? ChunksToCome(*pool, model, requests) : ChunksMoved(*pool, requests);
  pool->timeline = Timeline(slots.size());
  for (TimelineChunk& chunk : chunks) pool->timeline.Add(std::move(chunk));
}

std::vector<TimelineChunk> PrefillPools::ChunksMoved(const Pool& pool,
                                                     const RequestTable& requests) const {
  std::vector<TimelineChunk> chunks = pool.timeline.Chunks();
  for (TimelineChunk& chunk : chunks) {
    chunk = EstimatedChunk(pool, requests.At(chunk.request), chunk.key.index);
  }
  return chunks;
}

PoolQueue PrefillPools::QueueOf(const std::string& model, Pool* pool,
                                const std::set<InstanceId>& tried, TimeUs now) {
  for (const Instance* instance : registry_.TakeChanged(model, Role::kPrefill)) {
    const auto slot = pool->slot_of.find(instance->id);
    if (slot == pool->slot_of.end()) continue;
    pool->takes[static_cast<size_t>(slot->second)] = instance->TakesAssigns() ? 1 : 0;
  }
  std::vector<size_t> withheld;
  for (const InstanceId instance : tried) {
    const auto slot = pool->slot_of.find(instance);
    if (slot == pool->slot_of.end()) continue;
    char& takes = pool->takes[static_cast<size_t>(slot->second)];
    if (std::exchange(takes, 0) != 0) withheld.push_back(static_cast<size_t>(slot->second));
  }
  PoolQueue queue = UsableQueues(*pool, now);
  for (const size_t slot : withheld) pool->takes[slot] = 1;
  return queue;
}

PoolQueue PrefillPools::UsableQueues(const Pool& pool, TimeUs now) {
  PoolQueue queue;
  queue.queue_s.assign(pool.takes.size(), kAbsentQueueS);
  auto& soonest = queue.soonest;  // a heap: the latest of them in front
  soonest.reserve(PoolQueue::kSoonest);
  pool.timeline.ForEachQueue(now, [&](size_t slot, double queue_s) {
    if (pool.takes[slot] == 0) return;
    ++queue.usable;
    queue.queue_s[slot] = queue_s;
    if (soonest.size() == PoolQueue::kSoonest) {
      if (queue_s >= soonest.front().first) return;
      std::pop_heap(soonest.begin(), soonest.end());
      soonest.pop_back();
    }
    soonest.emplace_back(queue_s, slot);
    std::push_heap(soonest.begin(), soonest.end());
  });
  std::sort(soonest.begin(), soonest.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  return queue;
}

TimelineChunk PrefillPools::EstimatedChunk(const Pool& pool, const Request& request,
                                           size_t index) const {
  const Chunk& chunk = request.chunks[index];
  TimelineChunk estimated{.key = {chunk.sequence, index},
                          .request = request.spec->id,
                          .plan = request.epoch,
                          .slots = {}};
  estimated.slots.reserve(chunk.members);
  for (size_t i = 0; i < chunk.members; ++i) {
    const auto slot = pool.slot_of.find(request.members[i].instance);
    if (slot != pool.slot_of.end()) estimated.slots.push_back(slot->second);
  }
  // A submitter may ask for more instances than the profile knows.
  const LatencyModel& latency = planning_->latency;
  const int sp = latency.LargestSizeWithin(static_cast<int>(chunk.members));
  estimated.seconds = latency.SecondsWith(sp, chunk.tp, chunk.history, chunk.tokens);
  if (chunk.started_us >= 0) estimated.running_since_us = chunk.started_us;
  return estimated;
}

std::vector<TimelineChunk> PrefillPools::ChunksToCome(const Pool& pool, const std::string& model,
                                                      const RequestTable& requests) const {
  std::vector<TimelineChunk> chunks;
  requests.ForEach([&](const Request& request) {
    if (request.spec->model != model) return;
    for (size_t k = 0; k < request.chunks.size(); ++k) {
      if (request.chunks[k].ended_us < 0) chunks.push_back(EstimatedChunk(pool, request, k));
    }
  });
  std::sort(chunks.begin(), chunks.end(),
            [](const TimelineChunk& a, const TimelineChunk& b) { return a.key < b.key; });
  return chunks;
}

// Instances of one pool have one latency profile, so those of a node are alike.
int PrefillPools::ChooseTp(const Pool& pool, const Request& request, const Chunk& chunk) const {
  const LatencyModel& latency = pool.planner.latency();
  if (!latency.HasShapes()) return 1;
  std::vector<const std::string*> nodes;  // by rank
  for (size_t rank = 0; rank < chunk.members; ++rank) {
    const Instance* instance = registry_.Find(request.members[rank].instance);
    if (instance == nullptr) return 1;
    nodes.push_back(&instance->identity.node);
  }
  const int possible = LargestTensorGroup(nodes.size(), [&](size_t a, size_t b) {
    return !nodes[a]->empty() && *nodes[a] == *nodes[b];
  });
  return latency.ChooseTp(static_cast<int>(chunk.members), chunk.history, chunk.tokens, possible);
}

double PrefillPools::SlowerSeconds(const Request& request, size_t index) const {
  const Chunk& chunk = request.chunks[index];
  const auto sp = static_cast<int>(chunk.members);
  const auto pool = pools_.find(request.spec->model);
  if (pool == pools_.end()) return 0;
  const LatencyModel& latency = pool->second.planner.latency();
  if (!latency.HasShapes() || !latency.HasSp(sp)) return 0;
  return latency.SecondsWith(sp, chunk.tp, chunk.history, chunk.tokens) -
         latency.Seconds(sp, chunk.history, chunk.tokens);
}

void PrefillPools::AddChunk(Request* request, size_t index, TimeUs now) {
  Pool* pool = Known(request->spec->model);
  if (pool == nullptr) return;
  Chunk& planned = request->chunks[index];
  if (!request->AskedTp(planned.members).has_value()) {
    planned.tp = ChooseTp(*pool, *request, planned);
  }
  TimelineChunk chunk = EstimatedChunk(*pool, *request, index);
  double first_free_s = kEstimateMaxS;
  for (const int slot : chunk.slots) {
    first_free_s = std::min(first_free_s, pool->timeline.QueueSeconds(slot, now));
  }
  const int slot = chunk.slots.empty() ? -1 : chunk.slots.front();
  pool->timeline.Add(std::move(chunk));
  if (slot < 0) return;
  const double end_s = pool->timeline.QueueSeconds(slot, now);
  request->chunks[index].estimated_us =
      static_cast<TimeUs>(std::min(end_s - first_free_s, kEstimateMaxS) * kSecondUs);
}

void PrefillPools::BeginChunk(Request* request, size_t index, TimeUs since_us) {
  Chunk& chunk = request->chunks[index];
  chunk.started_us = since_us;
  Pool* pool = Known(request->spec->model);
  if (pool != nullptr) pool->timeline.Begin({chunk.sequence, index}, since_us);
}

void PrefillPools::EndChunk(Request* request, size_t index, TimeUs now) {
  Chunk& chunk = request->chunks[index];
  chunk.ended_us = now;
  moved_.insert(request->spec->model);
  Pool* pool = Known(request->spec->model);
  if (pool != nullptr) pool->timeline.Remove({chunk.sequence, index});
}

void PrefillPools::DropPlan(const Request& request) {
  moved_.insert(request.spec->model);
  Pool* pool = Known(request.spec->model);
  if (pool != nullptr) pool->timeline.Drop(request.epoch);
}

void PrefillPools::MayBegin(const Request& request) {
  moved_.insert(request.spec->model);
  Pool* pool = Known(request.spec->model);
  if (pool == nullptr) return;
  for (size_t k = 0; k < request.chunks.size(); ++k) {
    if (request.chunks[k].ended_us >= 0) continue;
    return pool->timeline.Recheck({request.chunks[k].sequence, k});
  }
}

std::vector<RequestId> PrefillPools::TakeReady(const std::string& model) {
  Pool* pool = Known(model);
  return pool == nullptr ? std::vector<RequestId>{} : pool->timeline.TakeReady();
}

absl::Status PrefillPools::CheckInvariants(const RequestTable& requests) const {
  for (const auto& [model, pool] : pools_) {
    if (absl::Status status = pool.timeline.CheckInvariants(); !status.ok()) return status;
    if (pool.timeline.Chunks() != ChunksToCome(pool, model, requests)) {
      return absl::InternalError(
          "PrefillPools: the timeline has other chunks than the requests of model " + model);
    }
    if (pool.version != registry_.PoolVersion(model, Role::kPrefill)) continue;
    for (size_t slot = 0; slot < pool.instances.size(); ++slot) {
      const Instance* instance = pool.instances[slot];
      if (instance == nullptr || instance->change_noted()) continue;
      if ((pool.takes[slot] != 0) == instance->TakesAssigns()) continue;
      return absl::InternalError(
          "PrefillPools: the list of instances that take plans is out of date for model " + model);
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
