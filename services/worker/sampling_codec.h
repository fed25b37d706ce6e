// Sampling parameters and sampled tokens between the wire and the engine.
#pragma once

#include "absl/status/status.h"
#include "engine/sampling/sampling_params.h"
#include "proto/common.pb.h"
#include "scheduler/base/request.h"

namespace skein::services {

// `spec.sampling` was checked by services/codec; stop tokens are suppressed until min_tokens.
engine::SamplingParams SamplingFrom(const scheduler::RequestSpec& spec);

// What no engine of this vocabulary could run, found before it is in a batch: INVALID_ARGUMENT
// names an id of the prompt or of the sampling parameters that is outside it, or says that no token
// is left to sample.
absl::Status CheckSpec(const scheduler::RequestSpec& spec, int vocab_size);

v1::SampledToken ToProto(const engine::SampledToken& token);

}  // namespace skein::services
