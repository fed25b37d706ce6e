#include "services/router/generation/generation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/common.pb.h"
#include "scheduler/vocabulary/mix64.h"
#include "services/router/generation/token_range.h"

namespace skein::services {
namespace {

using openai::InvalidParam;
using openai::Kind;
using openai::MaybeError;

constexpr int64_t kCompletionMaxTokens = 16;  // OpenAI's

const char* PromptParam(Kind kind) { return kind == Kind::kChat ? "messages" : "prompt"; }

openai::ApiError TooLong(Kind kind, int64_t limit, int64_t prompt, int64_t completion) {
  const char* param = PromptParam(kind);
  return InvalidParam(param,
                      absl::StrCat("This model's maximum context length is ", limit,
                                   " tokens. However, you requested ", prompt + completion,
                                   " tokens (", prompt, " in the ", param, ", ", completion,
                                   " in the completion). Please reduce the length of the ", param,
                                   " or completion."),
                      "context_length_exceeded");
}

std::string SamplingBytes(const ServedModel& model, const openai::GenerationOptions& options,
                          uint64_t seed) {
  const SamplingDefaults& defaults = model.defaults;
  v1::SamplingParams out;
  out.set_temperature(static_cast<float>(options.temperature.value_or(defaults.temperature)));
  out.set_top_k(static_cast<int32_t>(options.top_k.value_or(defaults.top_k)));
  // The sampler wants top_p above 0; so small a nucleus is the most likely token, which 0 means.
  out.set_top_p(std::max(1e-6f, static_cast<float>(options.top_p.value_or(defaults.top_p))));
  out.set_min_p(static_cast<float>(options.min_p.value_or(defaults.min_p)));
  out.set_repetition_penalty(
      static_cast<float>(options.repetition_penalty.value_or(defaults.repetition_penalty)));
  out.set_presence_penalty(static_cast<float>(options.presence_penalty));
  out.set_frequency_penalty(static_cast<float>(options.frequency_penalty));
  for (const auto& [token, bias] : options.logit_bias) {
    v1::LogitBias* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  out.set_seed(seed);
  // The best are chosen by their logprobs, which are then needed whether or not the client sees
  // them.
  const bool score = options.best_of > options.n;
  out.set_top_logprobs(score ? std::max(0, options.top_logprobs) : options.top_logprobs);
  return out.SerializeAsString();
}

// Each id once, the model's own first.
std::vector<int32_t> StopTokens(const ServedModel& model,
                                const openai::GenerationOptions& options) {
  std::vector<int32_t> stop;
  const auto add = [&stop](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      if (std::count(stop.begin(), stop.end(), id) == 0) stop.push_back(id);
    }
  };
  if (!options.ignore_eos) add(model.eos_ids);
  add(options.stop_token_ids);
  return stop;
}

}  // namespace

MaybeError ResolveMaxTokens(Kind kind, const openai::GenerationOptions& options,
                            const LengthLimits& limits, int64_t prompt_tokens,
                            int64_t* max_tokens) {
  const int64_t limit = limits.max_positions;
  if (limits.max_prompt_tokens > 0 && prompt_tokens > limits.max_prompt_tokens) {
    return InvalidParam(
        PromptParam(kind),
        absl::StrCat("The prompt has ", prompt_tokens, " tokens; this server takes ",
                     limits.max_prompt_tokens, " at the most."),
        "context_length_exceeded");
  }
  // Without max_tokens at least one token must fit.
  const int64_t needed = options.max_tokens.value_or(1);
  if (needed > limit - prompt_tokens) return TooLong(kind, limit, prompt_tokens, needed);
  const int64_t left = limit - prompt_tokens;
  const int64_t most = kind == Kind::kChat ? limits.default_max_tokens : kCompletionMaxTokens;
  *max_tokens = options.max_tokens.value_or(std::min(left, most));
  if (options.min_tokens > *max_tokens) {
    return InvalidParam("min_tokens", absl::StrCat("Invalid 'min_tokens': ", options.min_tokens,
                                                   " is above max_tokens, ", *max_tokens, "."));
  }
  return std::nullopt;
}

MaybeError CheckPromptLogprobs(int64_t prompt_tokens, int top) {
  // A SampledToken and its alternatives, each with tags and the longest id (proto/common.proto).
  const int64_t bytes = prompt_tokens * (14 + 13 * static_cast<int64_t>(top));
  constexpr int64_t kRestBytes = 2 << 20;  // of that message
  const int64_t bytes_max = kLogprobsMessageBytesMax - kRestBytes;
  if (bytes <= bytes_max) return std::nullopt;
  return InvalidParam(
      "logprobs",
      absl::StrCat("Invalid 'logprobs': ", top, " alternatives for each of ", prompt_tokens,
                   " prompt tokens may need ", bytes, " bytes; this server sends at most ",
                   bytes_max, ". Ask for fewer, or echo a shorter prompt."));
}

MaybeError CheckTokenIds(const ServedModel& model, const openai::GenerationOptions& options) {
  std::vector<int32_t> biased;
  for (const auto& [token, bias] : options.logit_bias) biased.push_back(token);
  if (MaybeError error = CheckTokenRange(model.vocab_size, "logit_bias", biased)) return error;
  return CheckTokenRange(model.vocab_size, "stop_token_ids", options.stop_token_ids);
}

// SplitMix64's number `index` from `seed`.
uint64_t ChoiceSeed(uint64_t seed, int index) {
  if (index == 0) return seed;
  return Mix64(seed + static_cast<uint64_t>(index) * kMix64Step);
}

std::shared_ptr<scheduler::RequestSpec> MakeSpec(const ServedModel& model,
                                                 const openai::GenerationOptions& options,
                                                 const std::vector<int32_t>& prompt,
                                                 int64_t max_tokens, uint64_t seed, int index,
                                                 bool want_prompt_logprobs) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->model = model.name;
  spec->prompt = prompt;
  spec->max_tokens = max_tokens;
  spec->min_tokens = options.min_tokens;
  spec->sampling = SamplingBytes(model, options, ChoiceSeed(seed, index));
  spec->stop_token_ids = StopTokens(model, options);
  spec->want_prompt_logprobs = want_prompt_logprobs;
  return spec;
}

void SharePrompts(int choices, std::vector<std::shared_ptr<scheduler::RequestSpec>>* specs) {
  for (size_t i = 0; i < specs->size(); ++i) {
    scheduler::RequestSpec& spec = *(*specs)[i];
    const size_t choice = i % static_cast<size_t>(choices);
    if (choice > 0 && spec.max_tokens > 0) spec.prompt_of = (*specs)[i - choice]->id;
  }
}

}  // namespace skein::services
