#include "services/worker/engine/sampling_codec.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/sampling/sampler.h"

namespace skein::services {
namespace {

absl::Status Range(const char* name, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.", name, ": ", value, " is not between ", min, " and ", max));
}

// Ranges as OpenAI and vLLM have them; names the parameter.
absl::Status CheckSampling(const v1::SamplingParams& s) {
  for (const absl::Status& status :
       {Range("temperature", s.temperature(), 0, 100), Range("top_k", s.top_k(), 0, 1 << 30),
        Range("top_p", s.top_p(), 1e-9, 1), Range("min_p", s.min_p(), 0, 1),
        Range("repetition_penalty", s.repetition_penalty(), 1e-6, 1e6),
        Range("presence_penalty", s.presence_penalty(), -2, 2),
        Range("frequency_penalty", s.frequency_penalty(), -2, 2),
        Range("top_logprobs", s.top_logprobs(), -1, 1024)}) {
    if (!status.ok()) return status;
  }
  for (const v1::LogitBias& bias : s.logit_bias()) {
    if (bias.token() < 0 || !std::isfinite(bias.bias())) {
      return absl::InvalidArgumentError(absl::StrCat("sampling.logit_bias: ", bias.token(), ": ",
                                                     bias.bias(), " is not a token and a number"));
    }
  }
  return absl::OkStatus();
}

engine::SamplingParams SamplingOf(const scheduler::RequestSpec& spec,
                                  const v1::SamplingParams& in) {
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
  if (spec.min_tokens > 0) {  // of this attempt; the sampler counts the whole answer
    out.min_tokens = static_cast<int>(spec.min_tokens + spec.sent_tokens);
    out.suppressed_until_min_tokens = spec.stop_token_ids;
  }
  return out;
}

}  // namespace

engine::SamplingParams SamplingFrom(const scheduler::RequestSpec& spec) {
  v1::SamplingParams sampling;
  sampling.ParseFromString(spec.sampling);
  return SamplingOf(spec, sampling);
}

absl::Status CheckSpec(const scheduler::RequestSpec& spec, int vocab_size) {
  if (spec.min_tokens > spec.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: ", spec.min_tokens, " is above max_tokens ", spec.max_tokens));
  }
  for (size_t i = 0; i < spec.stop_token_ids.size(); ++i) {
    if (spec.stop_token_ids[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stop_token_ids[", i, "]: ", spec.stop_token_ids[i], " is not a token id"));
  }
  for (size_t i = 0; i < spec.prompt.size(); ++i) {
    if (spec.prompt[i] >= 0 && spec.prompt[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prompt[", i, "] = ", spec.prompt[i], ": must be from 0 to ", vocab_size - 1));
  }
  v1::SamplingParams sampling;
  if (!sampling.ParseFromString(spec.sampling)) {
    return absl::InvalidArgumentError("sampling: is not a serialised SamplingParams");
  }
  if (absl::Status status = CheckSampling(sampling); !status.ok()) return status;
  const engine::SamplingParams params = SamplingOf(spec, sampling);
  const absl::Status status = engine::CheckSamplingParams(params, vocab_size);
  if (!status.ok() || spec.max_tokens == 0) return status;
  return engine::CheckTokenLeft(params, vocab_size);
}

std::string PayloadOf(const engine::SampledToken& token) {
  const bool plain = token.logprob == 0 && token.top.empty();
  return plain ? std::string() : ToProto(token).SerializeAsString();
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
