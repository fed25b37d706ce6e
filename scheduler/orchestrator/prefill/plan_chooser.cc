#include "scheduler/orchestrator/prefill/plan_chooser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"
#include "scheduler/kv/deal.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/orchestrator/prefill/asked_shape.h"
#include "scheduler/plan/tensor_groups.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {
namespace {

using Pool = PrefillPools::Pool;

int64_t PromptBlocks(const Request& request, const Instance& instance) {
  return BlocksOf(instance.identity.shape, PromptTokens(*request.spec));
}

// The prompt's KV, alone.
bool HoldsAll(const Request& request, const Instance& instance) {
  return PromptBlocks(request, instance) <= instance.identity.total_blocks;
}

PlannedChunk ToPlanned(const Pool& pool, const ChunkPlan& chunk) {
  PlannedChunk planned{.tokens = chunk.tokens, .instances = {}};
  for (const int slot : chunk.instances) {
    planned.instances.push_back(pool.IdAt(static_cast<size_t>(slot)));
  }
  return planned;
}

PlanExplanation ExplanationOf(const Pool& pool, const PoolQueue& queue) {
  PlanExplanation explanation;
  explanation.queue_s.reserve(queue.soonest.size());
  for (const auto& [queue_s, slot] : queue.soonest) {
    explanation.queue_s.emplace_back(pool.IdAt(slot), queue_s);
  }
  return explanation;
}

PlanChoice Plan(std::vector<PlannedChunk> chunks, PlanExplanation explanation) {
  return {.kind = PlanChoice::Kind::kPlan,
          .chunks = std::move(chunks),
          .explanation = std::move(explanation)};
}

}  // namespace

// Each round leaves out one instance more.
PlanChoice PlanChooser::Choose(const Request& request, PrefillPools& pools, Pool* pool,
                               TimeUs now) {
  PlanChoice choice = ChooseWithout(request.tried_prefill, request, pools, pool, now);
  Instances without = request.tried_prefill;
  while (pairs_.any() && choice.kind == PlanChoice::Kind::kPlan) {
    const std::optional<InstanceId> parted = PartedIn(choice.chunks);
    if (!parted.has_value()) break;
    without.insert(*parted);
    PlanChoice other = ChooseWithout(without, request, pools, pool, now);
    if (other.kind != PlanChoice::Kind::kPlan) break;  // there is no other way
    choice = std::move(other);
  }
  return choice;
}

bool PlanChooser::HasParted(const Pool& pool) const {
  if (!pairs_.any()) return false;
  SKEIN_LOOKED(pool.instances.size());
  return std::any_of(pool.slot_of.begin(), pool.slot_of.end(), [&](const auto& one) {
    const std::set<InstanceId>& barred = pairs_.BarredFor(one.first);
    return std::any_of(barred.begin(), barred.end(),
                       [&](InstanceId id) { return pool.slot_of.contains(id); });
  });
}

std::optional<InstanceId> PlanChooser::PartedIn(const std::vector<PlannedChunk>& chunks) const {
  const std::vector<InstanceId>& all = chunks.back().instances;  // those of the ones before, too
  for (const InstanceId one : all) {
    const std::set<InstanceId>& barred = pairs_.BarredFor(one);
    const auto other =
        std::find_if(all.begin(), all.end(), [&](InstanceId id) { return barred.contains(id); });
    if (other != all.end()) return *other;
  }
  return std::nullopt;
}

PlanChoice PlanChooser::ChooseWithout(const Instances& without, const Request& request,
                                      PrefillPools& pools, Pool* pool, TimeUs now) {
  const bool scored = request.spec->want_prompt_logprobs;  // by one instance only
  if (request.shape.instances > 1 && !scored) return ChooseAsked(without, request);
  if (std::optional<PlanChoice> kept = ChooseKept(request, pools, pool, now))
    return *std::move(kept);
  if (pool == nullptr) return ChooseByRate(request);
  const PoolQueue queue = pools.QueueOf(request.spec->model, pool, without, now);
  if (queue.usable == 0) return {};
  if (scored) {
    return ChooseOne(request, *pool, queue, "one instance: prompt logprobs were requested");
  }
  if (request.shape.instances == 1) {
    return ChooseOne(request, *pool, queue, "one instance: the request asks for one");
  }
  if (queue.usable == 1) {
    return ChooseOne(request, *pool, queue, "one instance: no other is available");
  }
  if (pool->planner.rolling() == nullptr) return ChooseByPolicy(request, *pool, queue, now);
  if (HasParted(*pool) && EachHoldsAll(request, *pool, queue)) {
    return ChooseOne(request, *pool, queue, "one instance: some do not reach each other now");
  }
  return EachHoldsAll(request, *pool, queue) ? Roll(request, *pool, queue)
                                             : ChooseToFit(request, *pool, queue);
}

std::optional<PlanChoice> PlanChooser::ChooseKept(const Request& request, PrefillPools& pools,
                                                  Pool* pool, TimeUs now) const {
  const Instance* const kept = registry_.Find(request.kept_at);
  const bool usable = kept != nullptr && kept->TakesAssigns() && HoldsAll(request, *kept) &&
                      request.tried_prefill.count(request.kept_at) == 0 &&
                      !request.spec->want_prompt_logprobs;
  if (!usable) return std::nullopt;
  PlanExplanation explanation;
  if (pool != nullptr) {
    explanation =
        ExplanationOf(*pool, pools.QueueOf(request.spec->model, pool, request.tried_prefill, now));
  }
  explanation.how = "one instance: it has computed the prompt of the attempt before";
  return Plan({{PromptTokens(*request.spec), {request.kept_at}}}, std::move(explanation));
}

PlanChoice PlanChooser::ChooseByRate(const Request& request) {
  const std::string& model = request.spec->model;
  const RateOrder& order = rates_.Of(model);
  if (order.size() == 0) return {};
  const int64_t blocks = BlocksOfPrompt(request);
  const auto allows = [&](InstanceId id) {
    return request.tried_prefill.count(id) == 0 &&
           blocks <= registry_.Find(id)->identity.total_blocks;
  };
  const bool one_holds_all = blocks <= registry_.BlocksOfPool(model, Role::kPrefill).largest;
  std::optional<InstanceId> pick;
  const int64_t tokens = PromptTokens(*request.spec);
  const std::string& tenant = request.spec->tenant;
  tenants_seen_ = tenants_seen_ || !tenant.empty();
  if (one_holds_all && tenants_seen_) {
    pick = order.PickBefore(tokens, allows, [&](InstanceId id) {
      return registry_.Find(id)->queues.TokensBefore(tenant, tokens);
    });
  } else if (one_holds_all) {
    pick = order.Pick(tokens, allows);
  }
  if (!pick.has_value()) return Untried(request) > 0 ? TooLarge(request) : PlanChoice{};
  PlanExplanation explanation;
  explanation.how =
      "one instance, the one with the earliest estimated end: there is no latency profile";
  order.ForShortest(PoolQueue::kSoonest, [&](const PrefillCandidate& one) {
    if (allows(one.instance)) explanation.queue_s.emplace_back(one.instance, QueueSeconds(one));
  });
  return Plan({{tokens, {*pick}}}, std::move(explanation));
}

// The one that is free first. Only a prompt that some instances cannot hold needs a look at each.
PlanChooser::Soonest PlanChooser::SoonestThatHoldsAll(const Request& request, const Pool& pool,
                                                      const PoolQueue& queue) const {
  Soonest soonest;
  const auto look = [&](double queue_s, size_t slot) {
    if (queue_s < soonest.queue_s) soonest = {queue_s, pool.IdAt(slot)};
  };
  if (BlocksOfPrompt(request) <= pool.least_blocks) {
    for (const auto& [queue_s, slot] : queue.soonest) look(queue_s, slot);
    return soonest;
  }
  SKEIN_LOOKED(queue.queue_s.size());
  for (size_t slot = 0; slot < queue.queue_s.size(); ++slot) {
    const bool usable = queue.queue_s[slot] < kAbsentQueueS;
    if (usable && HoldsAll(request, *pool.instances[slot])) look(queue.queue_s[slot], slot);
  }
  return soonest;
}

PlanChoice PlanChooser::ChooseOne(const Request& request, const Pool& pool, const PoolQueue& queue,
                                  const char* why) const {
  const auto [soonest_s, instance] = SoonestThatHoldsAll(request, pool, queue);
  if (instance == InstanceId{}) {
    return request.spec->want_prompt_logprobs ? TooLarge(request)
                                              : ChooseToFit(request, pool, queue);
  }
  PlanExplanation explanation = ExplanationOf(pool, queue);
  explanation.how = why;
  const int64_t tokens = PromptTokens(*request.spec);
  explanation.ttft_s = soonest_s + pool.planner.latency().Seconds(1, 0, tokens);
  explanation.chunks = {{tokens, {instance}, soonest_s, explanation.ttft_s}};
  return Plan({{tokens, {instance}}}, std::move(explanation));
}

PlanChoice PlanChooser::ChooseAsked(const Instances& without, const Request& request) const {
  const PrefillShape& shape = request.shape;
  const AskedInstances asked =
      InstancesOfShape(registry_.Pool(request.spec->model, Role::kPrefill), shape, without);
  const std::string name =
      absl::StrCat(shape.instances, " instances with a tensor-parallel size of ", shape.tp);
  if (asked.members.empty()) {
    if (asked.serving >= shape.instances) return {};
    return {.kind = PlanChoice::Kind::kFail,
            .failure = absl::UnavailableError(
                absl::StrCat("plan_instances: the request asks for ", name, "; only ",
                             asked.serving, shape.tp > 1 ? " of one node" : "", " serve"))};
  }
  const std::vector<PlannedChunk> chunks = {
      {.tokens = PromptTokens(*request.spec), .instances = asked.members}};
  if (!Fits(request, chunks)) {
    return {.kind = PlanChoice::Kind::kFail,
            .failure = absl::InvalidArgumentError(
                absl::StrCat("prompt: ", PromptTokens(*request.spec),
                             " tokens do not fit into the KV blocks of ", name))};
  }
  PlanExplanation explanation;
  explanation.how = absl::StrCat(name, ": the request asks for them");
  return Plan(chunks, std::move(explanation));
}

PlanChoice PlanChooser::ChooseByPolicy(const Request& request, Pool& pool, const PoolQueue& queue,
                                       TimeUs now) const {
  const int64_t tokens = PromptTokens(*request.spec);
  const double rate = pool.planner.ImprovementRate(now);
  const std::optional<PrefillPlan> plan = pool.planner.Plan(queue.queue_s, tokens, rate);
  if (!plan.has_value()) {
    return ChooseOne(request, pool, queue,
                     "one instance: no group of the policy's size is available");
  }
  std::vector<PlannedChunk> chunks;
  for (const ChunkPlan& chunk : plan->chunks) chunks.push_back(ToPlanned(pool, chunk));
  if (!Fits(request, chunks)) return ChooseToFit(request, pool, queue);
  PlanExplanation explanation = ExplanationOf(pool, queue);
  explanation.how = pool.planner.config().policy.name;
  explanation.improvement_rate = rate;
  explanation.ttft_s = plan->ttft_s;
  explanation.alternatives = pool.planner.Alternatives(queue.queue_s, tokens);
  explanation.choice = pool.planner.choice();
  for (size_t k = 0; k < chunks.size(); ++k) {
    explanation.chunks.push_back(
        {chunks[k].tokens, chunks[k].instances, plan->chunks[k].start_s, plan->chunks[k].end_s});
  }
  return Plan(std::move(chunks), std::move(explanation));
}

PlanChoice PlanChooser::Roll(const Request& request, Pool& pool, const PoolQueue& queue) const {
  PlanChoice choice{.kind = PlanChoice::Kind::kRoll, .explanation = ExplanationOf(pool, queue)};
  choice.explanation.how = "rolling: each chunk is decided when its instances are free";
  choice.explanation.alternatives =
      pool.planner.Alternatives(queue.queue_s, PromptTokens(*request.spec));
  choice.explanation.choice = pool.planner.choice();
  return choice;
}

// Each of those that can be planned with.
bool PlanChooser::EachHoldsAll(const Request& request, const Pool& pool,
                               const PoolQueue& queue) const {
  if (PromptBlocks(request, *pool.instances[0]) <= pool.least_blocks) return true;  // one shape
  SKEIN_LOOKED(queue.queue_s.size());
  for (size_t slot = 0; slot < queue.queue_s.size(); ++slot) {
    if (queue.queue_s[slot] >= kAbsentQueueS) continue;
    if (!HoldsAll(request, *pool.instances[slot])) return false;
  }
  return true;
}

// Dealt as the members themselves will.
bool PlanChooser::Fits(const Request& request, const std::vector<PlannedChunk>& chunks) const {
  const auto holds_all = [&](InstanceId id) { return HoldsAll(request, *registry_.Find(id)); };
  const std::vector<InstanceId>& last = chunks.back().instances;  // those before, too
  if (std::all_of(last.begin(), last.end(), holds_all)) return true;
  const WorkerIdentity& lead = registry_.Find(chunks.front().instances.front())->identity;
  const int64_t tokens = PromptTokens(*request.spec);
  Dealer dealer({.prompt_tokens = tokens,
                 .block_tokens = TokensPerBlock(lead.shape),
                 .rank_tokens_max = lead.max_batch_tokens > 0 ? lead.max_batch_tokens : tokens});
  std::vector<InstanceId> members;  // by rank
  for (const PlannedChunk& chunk : chunks) {
    JoinByNode(
        chunk.instances,
        [this](InstanceId id) { return absl::string_view(registry_.Find(id)->identity.node); },
        &members);
    const absl::Status added = dealer.AddChunk({chunk.tokens, members});
    SKEIN_CHECK_MSG(added.ok(), std::string(added.message()).c_str());
  }
  return std::all_of(members.begin(), members.end(), [&](InstanceId instance) {
    return holds_all(instance) ||
           BlocksToFill(dealer, instance) <= registry_.Find(instance)->identity.total_blocks;
  });
}

// The `sp` instances that are free first of those with room for an equal share and `more_blocks`.
std::optional<ChunkPlan> PlanChooser::ShareAmong(int sp, int64_t more_blocks,
                                                 const Request& request, const Pool& pool,
                                                 const PoolQueue& queue) const {
  SKEIN_LOOKED(queue.queue_s.size());
  std::vector<std::pair<double, int>> free;
  for (size_t slot = 0; slot < queue.queue_s.size(); ++slot) {
    if (queue.queue_s[slot] >= kAbsentQueueS) continue;
    const Instance& instance = *pool.instances[slot];
    const int64_t share = (PromptBlocks(request, instance) + sp - 1) / sp + more_blocks;
    if (share > instance.identity.total_blocks) continue;
    free.emplace_back(queue.queue_s[slot], static_cast<int>(slot));
  }
  if (static_cast<int>(free.size()) < sp) return std::nullopt;
  std::partial_sort(free.begin(), free.begin() + sp, free.end());
  ChunkPlan chunk{.tokens = PromptTokens(*request.spec), .instances = {}};
  for (int i = 0; i < sp; ++i) chunk.instances.push_back(free[static_cast<size_t>(i)].second);
  std::sort(chunk.instances.begin(), chunk.instances.end());
  if (!Fits(request, {ToPlanned(pool, chunk)})) return std::nullopt;
  chunk.start_s = free[static_cast<size_t>(sp) - 1].first;
  chunk.end_s = chunk.start_s + pool.planner.latency().Seconds(sp, 0, chunk.tokens);
  return chunk;
}

PlanChoice PlanChooser::ChooseToFit(const Request& request, const Pool& pool,
                                    const PoolQueue& queue) const {
  std::optional<ChunkPlan> best;
  for (const int sp : pool.planner.latency().sp_sizes()) {
    for (const int64_t more_blocks : {0, 1, 2}) {  // shares are not quite equal
      const auto chunk = ShareAmong(sp, more_blocks, request, pool, queue);
      if (chunk.has_value() && (!best.has_value() || chunk->end_s < best->end_s)) best = chunk;
    }
  }
  if (!best.has_value()) return TooLarge(request);
  PlannedChunk planned = ToPlanned(pool, *best);
  PlanExplanation explanation = ExplanationOf(pool, queue);
  explanation.how = "one chunk: the prompt needs the memory of several instances";
  explanation.ttft_s = best->end_s;
  explanation.chunks = {{planned.tokens, planned.instances, best->start_s, best->end_s}};
  return Plan({std::move(planned)}, std::move(explanation));
}

int64_t PlanChooser::BlocksOfPrompt(const Request& request) const {
  const PoolView pool = registry_.Pool(request.spec->model, Role::kPrefill);
  return pool.empty() ? 0 : PromptBlocks(request, *pool.front());  // they have one shape
}

int64_t PlanChooser::Untried(const Request& request) const {
  const PoolCounts& counts = registry_.Counts(request.spec->model, Role::kPrefill);
  int64_t untried = counts.taking;
  for (const InstanceId tried : request.tried_prefill) {
    const Instance* instance = registry_.Find(tried);
    untried -= instance != nullptr && instance->TakesAssigns() ? 1 : 0;
  }
  return untried;
}

// An instance that serves but was not asked now: it has no room, or others come first.
bool PlanChooser::MayBeTakenLater(const Request& request) const {
  return registry_.Counts(request.spec->model, Role::kPrefill).serving > Untried(request);
}

// It does not wait for instances that are gone, whose size is known as far as this orchestrator has
// seen them: those behind it would wait too. The client's fault only if it never fitted, all
// instances were asked and the request never had a plan.
PlanChoice PlanChooser::TooLarge(const Request& request) const {
  const std::string& model = request.spec->model;
  const bool one = request.spec->want_prompt_logprobs;
  const int64_t blocks = BlocksOfPrompt(request);
  const auto instances = static_cast<int64_t>(registry_.Pool(model, Role::kPrefill).size());
  const bool all = request.explanation.plans.empty() &&
                   registry_.Counts(model, Role::kPrefill).placeable == instances;
  const Registry::PoolBlocks now = registry_.BlocksOfPool(model, Role::kPrefill);
  const Registry::PoolBlocks most = registry_.MostBlocksOfPool(model, Role::kPrefill);
  const int64_t room = one ? now.largest : now.together;
  const int64_t most_room = one ? most.largest : most.together;
  if (blocks <= room && MayBeTakenLater(request)) return {};
  const bool gone = room < most_room && blocks <= most_room;
  const std::string why =
      absl::StrCat("prompt: ", PromptTokens(*request.spec), " tokens need ", blocks,
                   one ? " KV blocks of one instance; of " : " KV blocks; of ", instances,
                   " prefill instances the largest has ", now.largest, ", all together have ",
                   now.together, gone ? "; instances that could hold it have left. Retry." : "");
  return {.kind = PlanChoice::Kind::kFail,
          .failure = all && !gone ? absl::InvalidArgumentError(why) : absl::UnavailableError(why)};
}

}  // namespace skein::scheduler::orchestrator
