#include "services/worker/sampling_codec.h"

#include "absl/strings/str_cat.h"
#include "engine/sampling/sampler.h"

namespace skein::services {

engine::SamplingParams SamplingFrom(const scheduler::RequestSpec& spec) {
  v1::SamplingParams in;
  in.ParseFromString(spec.sampling);
  engine::SamplingParams out;
  out.temperature = in.temperature();
  out.top_k = in.top_k();
  out.top_p = in.top_p();
  out.min_p = in.min_p();
  out.repetition_penalty = in.repetition_penalty();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  for (const v1::LogitBias& bias : in.logit_bias()) {
    out.logit_bias.emplace_back(bias.token(), bias.bias());
  }
  out.seed = in.seed();
  out.top_logprobs = in.top_logprobs();
  out.min_tokens = static_cast<int>(spec.min_tokens);
  if (spec.min_tokens > 0) out.suppressed_until_min_tokens = spec.stop_token_ids;
  return out;
}

absl::Status CheckSpec(const scheduler::RequestSpec& spec, int vocab_size) {
  for (size_t i = 0; i < spec.prompt.size(); ++i) {
    if (spec.prompt[i] >= 0 && spec.prompt[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prompt[", i, "] = ", spec.prompt[i], ": must be from 0 to ", vocab_size - 1));
  }
  const engine::SamplingParams params = SamplingFrom(spec);
  const absl::Status status = engine::CheckSamplingParams(params, vocab_size);
  if (!status.ok() || spec.max_tokens == 0) return status;
  return engine::CheckTokenLeft(params, vocab_size);
}

v1::SampledToken ToProto(const engine::SampledToken& token) {
  v1::SampledToken out;
  out.set_token(token.token);
  out.set_logprob(token.logprob);
  for (const engine::TokenLogprob& top : token.top) {
    v1::TokenLogprob* added = out.add_top();
    added->set_token(top.token);
    added->set_logprob(top.logprob);
  }
  return out;
}

}  // namespace skein::services
