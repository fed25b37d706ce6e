// Sampling parameters and sampled tokens between the wire and the engine.
#pragma once

#include "engine/sampling/sampling_params.h"
#include "proto/common.pb.h"
#include "scheduler/base/request.h"

namespace skein::services {

// `spec.sampling` was checked by services/codec; stop tokens are suppressed until min_tokens.
engine::SamplingParams SamplingFrom(const scheduler::RequestSpec& spec);

v1::SampledToken ToProto(const engine::SampledToken& token);

}  // namespace skein::services
