#include "tests/sim/tenant_worlds.h"

#include <memory>
#include <utility>
#include <vector>

#include "proto/common.pb.h"
#include "scheduler/base/request.h"
#include "tests/sim/answers.h"
#include "tests/sim/variations.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/workload.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

constexpr uint64_t kFaultlessEvery = 5;  // of MakeScenario

// One prefill worker, which computes one prompt after the other, and room for all. No clients.
Scenario MakeOnePrefillWorker(uint64_t seed) {
  Scenario scenario = MakeScenario(kFaultlessEvery * seed);
  scenario.clients.clear();
  GiveRoom(&scenario);
  scenario.prefill_workers = 1;
  scenario.step_us = 1000;
  scenario.delay_max_us = 200;
  scenario.slice_tokens = 12;
  scenario.open_ahead = 2;
  scenario.staging_buffers = 0;
  scenario.prefill_requests = scenario.decode_requests = 1000;
  scenario.router_streams = 1000;
  scenario.decode_blocks = 4000;
  return scenario;
}

ClientPlan MakeClientOf(Random& random, uint64_t serial, TimeUs arrives_us, const char* tenant,
                        int64_t weight) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {kRouter, serial};
  spec->model = "m";
  for (int64_t i = random.Between(10, 30); i > 0; --i) {
    spec->prompt.push_back(static_cast<int32_t>(random.Between(0, kVocab - 1)));
  }
  spec->max_tokens = 1;
  v1::SamplingParams sampling;  // greedy
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_top_logprobs(-1);
  spec->sampling = sampling.SerializeAsString();
  spec->tenant = tenant;
  spec->tenant_weight = weight;
  return {.spec = spec, .arrives_us = arrives_us};
}

}  // namespace

void SendByTenants(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 113);
  const TimeUs burst_us = random.Between(100 * kMillisecondUs, scenario->heals_us);
  const char* tenant = "";
  int64_t weight = 1;
  TimeUs arrives_us = 0;
  for (ClientPlan& client : scenario->clients) {
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    if (!spec->prompt_of.has_value()) {  // else it is a choice of the answer before it
      const int64_t who = random.Between(0, 5);
      tenant = who == 0 ? "light" : who == 1 ? "heavy" : kBurst;
      weight = who == 1 ? 2 : 1;
      const TimeUs later_us = random.Between(0, 20) * kMillisecondUs;
      arrives_us = who <= 1 ? client.arrives_us : burst_us + later_us;
    }
    if (client.leaves_us != scheduler::kNever) client.leaves_us += arrives_us - client.arrives_us;
    client.arrives_us = arrives_us;
    spec->tenant = tenant;
    spec->tenant_weight = weight;
    if (random.Chance(0.3)) spec->ttft_goal_us = random.Between(1, 100) * kMillisecondUs;
    client.spec = spec;
  }
}

Scenario MakeTenantsScenario(uint64_t seed) {
  Scenario scenario = seed % 2 == 0 ? MakeScenario(seed) : MakeSpScenario(seed);
  SendByTenants(&scenario);
  return scenario;
}

Scenario MakeBurstScenario(uint64_t seed, bool told) {
  Scenario scenario = MakeOnePrefillWorker(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 127);
  const TimeUs at_us = 200 * kMillisecondUs;
  for (uint64_t serial = 1; serial <= 250; ++serial) {
    scenario.clients.push_back(MakeClientOf(random, serial, at_us, told ? kBurst : "", 1));
  }
  for (uint64_t i = 0; i < 5; ++i) {
    const TimeUs later_us = random.Between(10, 40) * kMillisecondUs;
    scenario.clients.push_back(
        MakeClientOf(random, kFirstOfQuiet + i, at_us + later_us, told ? "quiet" : "", 1));
  }
  return scenario;
}

Scenario MakeBacklogScenario(uint64_t seed) {
  Scenario scenario = MakeOnePrefillWorker(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 131);
  for (const bool second : {false, true}) {
    for (uint64_t i = 1; i <= 60; ++i) {
      scenario.clients.push_back(MakeClientOf(random, (second ? kFirstOfQuiet : 0) + i,
                                              200 * kMillisecondUs, second ? "second" : "first",
                                              second ? 2 : 1));
    }
  }
  return scenario;
}

}  // namespace skein::sim
