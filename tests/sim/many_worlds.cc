#include "tests/sim/many_worlds.h"

#include <memory>
#include <utility>

#include "proto/common.pb.h"
#include "tests/sim/answers.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

using scheduler::kMillisecondUs;

Scenario MakeManyScenario(const ManyShape& shape) {
  Random random(13088);
  Scenario scenario;
  scenario.seed = 13088;
  scenario.faultless = scenario.no_excuse = true;
  scenario.time_scale = 10;
  scenario.step_us = 10 * kMillisecondUs;
  scenario.prefill_workers = shape.prefill;
  scenario.decode_workers = shape.decode;
  scenario.max_positions = shape.prompt_tokens + 64;
  scenario.prefill_batch_tokens = scenario.slice_tokens = 4096;
  const int blocks_of_prompt = shape.prompt_tokens / 4 + 1;
  scenario.prefill_blocks = 4 * blocks_of_prompt;
  scenario.decode_blocks = blocks_of_prompt + blocks_of_prompt / 2;
  scenario.router_streams = shape.clients;  // the others wait for their turn
  scenario.router_queue = shape.requests;
  scenario.max_actions = 1'000'000'000;
  scenario.checks_every = static_cast<uint64_t>(shape.checks_every);
  v1::SamplingParams sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_top_logprobs(-1);
  for (int i = 1; i <= shape.requests; ++i) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {kRouter, static_cast<uint64_t>(i)};
    spec->model = "m";
    for (int j = 0; j < shape.prompt_tokens; ++j) {
      spec->prompt.push_back(static_cast<int32_t>(random.Between(0, kVocab - 1)));
    }
    spec->max_tokens = 1;
    spec->sampling = sampling.SerializeAsString();
    scenario.clients.push_back(
        {.spec = std::move(spec), .arrives_us = (1000 + random.Between(0, 100)) * kMillisecondUs});
  }
  scenario.heals_us = 1200 * kMillisecondUs;
  return scenario;
}

}  // namespace skein::sim
