// Sampling parameters and sampled tokens between the wire and the engine.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/sampling/sampling_params.h"
#include "proto/common.pb.h"
#include "scheduler/base/request.h"

namespace skein::services {

// `spec` passed CheckSpec; stop tokens are suppressed until min_tokens.
engine::SamplingParams SamplingFrom(const scheduler::RequestSpec& spec);

// Checks, before batching, what no engine with this vocabulary can run. INVALID_ARGUMENT names
// min_tokens or a stop token id that makes no sense, an out-of-range sampling parameter, an id of
// the prompt or of the sampling parameters outside the vocabulary, or says that no token is left to
// sample. Only workers check these: on the way nobody parses them.
absl::Status CheckSpec(const scheduler::RequestSpec& spec, int vocab_size);

// What v1::TokenBatch.Sequence.sampled has of a token: empty when no logprobs were asked for.
std::string PayloadOf(const engine::SampledToken& token);

v1::SampledToken ToProto(const engine::SampledToken& token);

}  // namespace skein::services
