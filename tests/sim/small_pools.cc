#include "tests/sim/small_pools.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "scheduler/base/request.h"
#include "tests/sim/answers.h"

namespace skein::sim {
namespace {

int64_t BlocksOf(const scheduler::RequestSpec& spec) {
  const int64_t block_tokens = EngineOptions(scheduler::Role::kDecode).kv.block_tokens;
  return (scheduler::PromptTokens(spec) + spec.max_tokens + block_tokens - 1) / block_tokens;
}

}  // namespace

void ShrinkPools(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 79);
  int64_t largest = 0;
  for (std::vector<ClientPlan>* clients : {&scenario->clients, &scenario->probes}) {
    for (ClientPlan& client : *clients) {
      if (client.impossible || client.unknown_model) continue;
      auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
      // What fails a sequence alone depends on these.
      if (client.poison == absl::StatusCode::kOk) {
        if (spec->max_tokens > 1) spec->max_tokens = random.Between(10, 80);
        spec->min_tokens = std::min(spec->min_tokens, spec->max_tokens);
        if (random.Chance(0.7)) spec->stop_token_ids.clear();
      }
      if (random.Chance(0.2)) spec->priority = static_cast<int32_t>(random.Between(-1, 2));
      largest = std::max(largest, BlocksOf(*spec));
      client.spec = spec;
    }
  }
  scenario->decode_blocks = static_cast<int>(largest + random.Between(0, 8));
}

}  // namespace skein::sim
