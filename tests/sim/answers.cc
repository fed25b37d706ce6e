#include "tests/sim/answers.h"

#include <algorithm>

#include "services/worker/engine/sampling_codec.h"
#include "tests/sim/engine_thread.h"

namespace skein::sim {

engine::EmulatedOptions EngineOptions(scheduler::Role role, int kv_heads) {
  return {.kv = {{.num_layers = 2,
                  .kv_heads = kv_heads,
                  .head_dim = kv_heads > 1 ? 2 : 4,
                  .block_tokens = 4,
                  .dtype = engine::DType::kF32},
                 role == scheduler::Role::kPrefill ? 28 : 40},
          .vocab_size = kVocab,
          .max_positions = 512};
}

Expected ExpectedAnswer(const scheduler::RequestSpec& spec, int kv_heads) {
  Expected expected;
  const engine::EmulatedOptions options = EngineOptions(scheduler::Role::kDecode, kv_heads);
  const engine::SamplingParams sampling = services::SamplingFrom(spec);
  const auto& stops = spec.stop_token_ids;
  for (const engine::SampledToken& sampled :
       engine::EmulatedAnswer(options, spec.prompt, spec.max_tokens, sampling)) {
    const bool stop = std::count(stops.begin(), stops.end(), sampled.token) > 0;
    if (stop && static_cast<int64_t>(expected.tokens.size()) >= spec.min_tokens) {
      expected.stop_token = sampled.token;
      break;
    }
    expected.tokens.push_back(sampled.token);
    expected.payloads.push_back(services::PayloadOf(sampled));
  }
  if (spec.want_prompt_logprobs) {
    expected.prompt_logprobs =
        PromptPayload(engine::EmulatedPromptLogprobs(options, spec.prompt, sampling.top_logprobs));
  }
  return expected;
}

int64_t NanFrom(const scheduler::RequestSpec& spec) {
  const size_t digits = sizeof(kNanFrom) - 1;
  if (spec.names.empty() || spec.names[0].compare(0, digits, kNanFrom) != 0) return INT64_MAX;
  return std::stoll(spec.names[0].substr(digits));
}

}  // namespace skein::sim
