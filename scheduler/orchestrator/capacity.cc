// Prompts that are larger than the memory of a prefill instance: as many compute one together as
// have room for its KV.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/kv/deal.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

int64_t OrchestratorCore::Impl::PromptBlocks(const Request& request, InstanceId instance) const {
  return BlocksOf(registry_.Find(instance)->identity.shape, PromptTokens(*request.spec));
}

bool OrchestratorCore::Impl::HoldsAll(const Request& request, InstanceId instance) const {
  return PromptBlocks(request, instance) <= registry_.Find(instance)->identity.total_blocks;
}

// Each of those that can be planned with.
bool OrchestratorCore::Impl::EachHoldsAll(const Request& request, const PoolPlanner& pool,
                                          const PoolQueue& queue) const {
  for (size_t slot = 0; slot < queue.queue_s.size(); ++slot) {
    if (queue.queue_s[slot] >= kAbsentQueueS) continue;
    if (!HoldsAll(request, pool.layout().slots[slot])) return false;
  }
  return true;
}

// Dealt as the members themselves will.
bool OrchestratorCore::Impl::Fits(const Request& request,
                                  const std::vector<PlannedChunk>& chunks) const {
  const auto holds_all = [&](InstanceId instance) { return HoldsAll(request, instance); };
  const std::vector<InstanceId>& last = chunks.back().instances;  // those before, too
  if (std::all_of(last.begin(), last.end(), holds_all)) return true;
  const WorkerIdentity& lead = registry_.Find(chunks.front().instances.front())->identity;
  const int64_t tokens = PromptTokens(*request.spec);
  Dealer dealer({.prompt_tokens = tokens,
                 .block_tokens = lead.shape.block_tokens,
                 .rank_tokens_max = lead.max_batch_tokens > 0 ? lead.max_batch_tokens : tokens});
  std::vector<InstanceId> members;  // by rank
  for (const PlannedChunk& chunk : chunks) {
    for (const InstanceId instance : chunk.instances) {
      if (std::count(members.begin(), members.end(), instance) == 0) members.push_back(instance);
    }
    const absl::Status added = dealer.AddChunk({chunk.tokens, members});
    SKEIN_INVARIANT_MSG(added.ok(), std::string(added.message()).c_str());
  }
  return std::all_of(members.begin(), members.end(), [&](InstanceId instance) {
    return holds_all(instance) ||
           BlocksToFill(dealer, instance) <= registry_.Find(instance)->identity.total_blocks;
  });
}

// The `sp` instances that are free first of those with room for an equal share and `more` blocks.
std::optional<ChunkPlan> OrchestratorCore::Impl::ShareAmong(int sp, int64_t more,
                                                            const Request& request,
                                                            const PoolPlanner& pool,
                                                            const PoolQueue& queue) const {
  const std::vector<InstanceId>& slots = pool.layout().slots;
  std::vector<std::pair<double, int>> free;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (queue.queue_s[slot] >= kAbsentQueueS) continue;
    const int64_t share = (PromptBlocks(request, slots[slot]) + sp - 1) / sp + more;
    if (share > registry_.Find(slots[slot])->identity.total_blocks) continue;
    free.emplace_back(queue.queue_s[slot], static_cast<int>(slot));
  }
  if (static_cast<int>(free.size()) < sp) return std::nullopt;
  std::partial_sort(free.begin(), free.begin() + sp, free.end());
  ChunkPlan chunk{.tokens = PromptTokens(*request.spec), .instances = {}};
  PlannedChunk planned{.tokens = chunk.tokens, .instances = {}};
  for (int i = 0; i < sp; ++i) chunk.instances.push_back(free[static_cast<size_t>(i)].second);
  std::sort(chunk.instances.begin(), chunk.instances.end());
  for (const int slot : chunk.instances) {
    planned.instances.push_back(slots[static_cast<size_t>(slot)]);
  }
  if (!Fits(request, {planned})) return std::nullopt;
  chunk.start_s = free[static_cast<size_t>(sp) - 1].first;
  chunk.end_s = chunk.start_s + pool.config().latency.Seconds(sp, 0, chunk.tokens);
  return chunk;
}

void OrchestratorCore::Impl::PlanToFit(Request& request, PoolPlanner& pool,
                                       const PoolQueue& queue) {
  std::optional<ChunkPlan> best;
  for (const int sp : pool.config().latency.sp_sizes()) {
    for (const int64_t more : {0, 1, 2}) {  // shares are not quite equal
      const auto chunk = ShareAmong(sp, more, request, pool, queue);
      if (chunk.has_value() && (!best.has_value() || chunk->end_s < best->end_s)) best = chunk;
    }
  }
  if (!best.has_value()) return FailTooLarge(request);
  PlanExplanation& explained = Explained(request, &pool, &queue);
  explained.how = "one chunk: the prompt needs the memory of several instances";
  explained.ttft_s = best->end_s;
  PlannedChunk planned{.tokens = best->tokens, .instances = {}};
  for (const int slot : best->instances) {
    planned.instances.push_back(pool.layout().slots[static_cast<size_t>(slot)]);
  }
  explained.chunks = {{planned.tokens, planned.instances, best->start_s, best->end_s}};
  SendPlan(request, {planned});
}

// The caller's fault only if all that are alive were asked, and it never had a plan: one that did
// fits the instances that are gone.
void OrchestratorCore::Impl::FailTooLarge(Request& request) {
  int64_t blocks = 0;
  int64_t instances = 0;
  int64_t largest = 0;
  int64_t together = 0;
  bool all = request.explanation.plans.empty();
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kPrefill)) {
    blocks = PromptBlocks(request, instance->id);
    ++instances;
    largest = std::max(largest, instance->identity.total_blocks);
    together += instance->identity.total_blocks;
    all = all && instance->Placeable();
  }
  const bool may_fit = blocks <= (request.spec->want_prompt_logprobs ? largest : together);
  if (may_fit && SomeMayTakeLater(request)) return Park(request);
  const std::string why = absl::StrCat(
      "prompt: ", PromptTokens(*request.spec), " tokens take ", blocks,
      request.spec->want_prompt_logprobs ? " KV blocks of one instance; " : " KV blocks; ",
      instances, " prefill instances have ", largest, " at most, ", together, " together");
  Fail(request, all ? absl::InvalidArgumentError(why) : absl::UnavailableError(why));
}

}  // namespace skein::scheduler
