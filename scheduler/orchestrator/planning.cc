// Which instances compute a prompt.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

PrefillCandidate OrchestratorCore::Impl::PrefillCandidateOf(const Instance& instance) const {
  PrefillCandidate candidate{.instance = instance.id,
                             .queued_tokens = instance.load.queued_tokens,
                             .unreported_tokens = instance.unreported.prompt_tokens,
                             .tokens_per_second = instance.load.tokens_per_second};
  if (candidate.tokens_per_second <= 0) {
    candidate.tokens_per_second = config_.default_tokens_per_second;
  }
  return candidate;
}

void OrchestratorCore::Impl::Plan(Request& request) {
  if (!SomeServe(request.spec->model)) return FailUnplannable(request);
  if (MustPark(request)) return Park(request);
  Pool* pool = PoolOf(request.spec->model);
  if (pool == nullptr) return AssignPlain(request);
  const PoolQueue queue = QueueOf(*pool, request, now_);
  if (queue.usable == 0) return Park(request);
  if (request.spec->want_prompt_logprobs) {
    return PlanAlone(request, pool->planner, queue, "one instance: prompt logprobs were requested");
  }
  if (request.alone) {
    return PlanAlone(request, pool->planner, queue, "alone: it was asked for");
  }
  if (queue.usable == 1) {
    return PlanAlone(request, pool->planner, queue, "one instance: no other is available");
  }
  if (pool->planner.rolling() != nullptr) {
    if (!EachHoldsAll(request, pool->planner, queue)) {
      return PlanToFit(request, pool->planner, queue);
    }
    return Enrol(request, pool->planner, queue);
  }
  PlanCommitted(request, pool->planner, queue);
}

void OrchestratorCore::Impl::FailUnplannable(Request& request) {
  Fail(request,
       absl::UnavailableError(absl::StrCat("No prefill instance of model '", request.spec->model,
                                           "' is available. Retry.")));
}

// Without a planner: by the rate that the instances report.
void OrchestratorCore::Impl::AssignPlain(Request& request) {
  std::vector<PrefillCandidate> candidates;
  bool too_small = false;
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kPrefill)) {
    if (!instance->TakesAssigns() || request.tried_prefill.count(instance->id) > 0) continue;
    if (HoldsAll(request, instance->id)) {
      candidates.push_back(PrefillCandidateOf(*instance));
    } else {
      too_small = true;
    }
  }
  const std::optional<InstanceId> pick = PickPrefill(candidates, PromptTokens(*request.spec));
  if (!pick.has_value()) return too_small ? FailTooLarge(request) : Park(request);
  PlanExplanation& explained = Explained(request, nullptr, nullptr);
  explained.how =
      "one instance, the one with the earliest estimated end: there is no latency profile";
  for (const PrefillCandidate& one : candidates) {
    explained.queue_s.emplace_back(one.instance, QueueSeconds(one));
  }
  SendPlan(request, {{PromptTokens(*request.spec), {*pick}}});
}

void OrchestratorCore::Impl::PlanAlone(Request& request, PoolPlanner& pool, const PoolQueue& queue,
                                       const char* why) {
  double soonest_s = kAbsentQueueS;
  InstanceId instance;
  for (size_t slot = 0; slot < queue.queue_s.size(); ++slot) {
    if (queue.queue_s[slot] >= soonest_s || !HoldsAll(request, pool.layout().slots[slot])) continue;
    soonest_s = queue.queue_s[slot];
    instance = pool.layout().slots[slot];
  }
  if (instance == InstanceId{}) {
    return request.spec->want_prompt_logprobs ? FailTooLarge(request)
                                              : PlanToFit(request, pool, queue);
  }
  PlanExplanation& explained = Explained(request, &pool, &queue);
  explained.how = why;
  const double seconds = pool.config().latency.Seconds(1, 0, PromptTokens(*request.spec));
  explained.ttft_s = soonest_s + seconds;
  explained.chunks = {{PromptTokens(*request.spec), {instance}, soonest_s, explained.ttft_s}};
  SendPlan(request, {{PromptTokens(*request.spec), {instance}}});
}

void OrchestratorCore::Impl::PlanCommitted(Request& request, PoolPlanner& pool,
                                           const PoolQueue& queue) {
  const int64_t tokens = PromptTokens(*request.spec);
  const double rate = pool.ImprovementRate(now_);
  const std::optional<PrefillPlan> plan = pool.Plan(queue.queue_s, tokens, rate);
  if (!plan.has_value()) {
    return PlanAlone(request, pool, queue,
                     "one instance: no group of the policy's size is available");
  }
  std::vector<PlannedChunk> chunks;
  for (const ChunkPlan& chunk : plan->chunks) {
    PlannedChunk& planned = chunks.emplace_back();
    planned.tokens = chunk.tokens;
    for (const int slot : chunk.instances) {
      planned.instances.push_back(pool.layout().slots[static_cast<size_t>(slot)]);
    }
  }
  if (!Fits(request, chunks)) return PlanToFit(request, pool, queue);
  PlanExplanation& explained = Explained(request, &pool, &queue);
  explained.how = pool.config().policy.name;
  explained.improvement_rate = rate;
  explained.ttft_s = plan->ttft_s;
  explained.alternatives = pool.Alternatives(queue.queue_s, tokens, rate, &*plan);
  for (size_t k = 0; k < chunks.size(); ++k) {
    explained.chunks.push_back(
        {chunks[k].tokens, chunks[k].instances, plan->chunks[k].start_s, plan->chunks[k].end_s});
  }
  SendPlan(request, chunks);
}

// The pool's layout is that of the registry afterwards.
OrchestratorCore::Impl::Pool* OrchestratorCore::Impl::PoolOf(const std::string& model) {
  if (!plans()) return nullptr;
  const uint64_t version = registry_.PoolVersion(model, Role::kPrefill);
  auto it = pools_.find(model);
  if (it == pools_.end() || it->second.version != version) {
    std::vector<std::pair<std::string, InstanceId>> by_host;
    int64_t block_tokens = 1;
    for (const Instance* instance : registry_.Pool(model, Role::kPrefill)) {
      block_tokens = instance->identity.shape.block_tokens;
      // Who has no such address cannot compute with others.
      if (!instance->identity.comm_address.empty()) {
        by_host.emplace_back(instance->identity.host, instance->id);
      }
    }
    if (it == pools_.end()) {
      if (by_host.empty()) return nullptr;
      it = pools_.emplace(model, Pool{PoolPlanner(config_.planning)}).first;
    }
    it->second.version = version;
    it->second.planner.SetLayout(LayOut(std::move(by_host), config_.planning->node_size),
                                 block_tokens);
    LayOutTimeline(it->second, model);
  }
  return it->second.planner.layout().slots.empty() ? nullptr : &it->second;
}

OrchestratorCore::Impl::PoolQueue OrchestratorCore::Impl::QueueOf(const Pool& pool,
                                                                  const Request& request,
                                                                  TimeUs now) const {
  PoolQueue queue;
  const std::vector<InstanceId>& slots = pool.planner.layout().slots;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const Instance* instance = registry_.Find(slots[slot]);
    const bool usable = instance != nullptr && instance->TakesAssigns() &&
                        request.tried_prefill.count(slots[slot]) == 0;
    queue.queue_s.push_back(usable ? pool.timeline.QueueSeconds(slot, now) : kAbsentQueueS);
    queue.usable += usable ? 1 : 0;
  }
  return queue;
}

PlanExplanation& OrchestratorCore::Impl::Explained(Request& request, const PoolPlanner* pool,
                                                   const PoolQueue* queue) {
  constexpr size_t kMostPlans = 16;  // that are told of one request: the first, and the latest
  auto& plans = request.explanation.plans;
  if (plans.size() == kMostPlans) plans.erase(plans.begin() + 1);
  PlanExplanation& plan = plans.emplace_back();
  plan.decided_us = now_ - request.submitted_us;
  if (pool == nullptr) return plan;
  for (size_t slot = 0; slot < queue->queue_s.size(); ++slot) {
    const InstanceId instance = pool->layout().slots[slot];
    if (queue->queue_s[slot] < kAbsentQueueS) {
      plan.queue_s.emplace_back(instance, queue->queue_s[slot]);
    }
  }
  return plan;
}

void OrchestratorCore::Impl::On(const ReplacePlanningTables& event) {
  if (!plans()) return;
  auto planning = std::make_shared<PlanningConfig>(*config_.planning);
  planning->tables = event.tables;
  if (!CheckPlanning(*planning).ok()) return;
  for (auto& [model, pool] : pools_) pool.planner.ReplaceTables(event.tables);
  config_.planning = std::move(planning);  // for pools to come
}

}  // namespace skein::scheduler
