// Sampling on the device: a row of logits to a token, as engine/sampling/sampler.h defines it. One
// block a row. What the definition sums in f64, this sums in integers of 2^-42, so that the result
// never depends on the order of threads; it differs from the host's choice only where the uniform
// number falls within about 1e-12 of a boundary.
#pragma once

#include <cstdint>

#include "engine/base/tensor.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine {

inline constexpr int kDeviceTopLogprobsMax = 32;
inline constexpr int64_t kDeviceVocabMax = 1 << 20;

// How one id's logit changes before sampling (engine/sampling/logit_edits.h), at most one an id.
struct LogitEdit {
  int32_t id;
  int32_t repeated;      // the repetition penalty applies
  int32_t output_count;  // times in the output
  int32_t suppressed;    // becomes -inf
  float bias;
};

struct SampleRow {
  int32_t row;          // of the logits
  int32_t given;        // at least 0: nothing is sampled, this is the token
  int32_t edits_begin;  // in the list of all edits
  int32_t edits_count;
  int32_t top_k;         // 0: off
  int32_t top_logprobs;  // -1: no logprob; else up to kDeviceTopLogprobsMax alternatives
  float temperature;
  float top_p;
  float min_p;
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  double uniform;  // in [0, 1)
};

enum class SampleState : int32_t { kSampled = 0, kBadLogits = 1, kNothingLeft = 2 };

struct SampleOut {
  SampleState state;
  int32_t token;
  float logprob;  // when top_logprobs >= 0
  int32_t top_count;
  int32_t top_ids[kDeviceTopLogprobsMax];
  float top_logprobs[kDeviceTopLogprobsMax];
};

// Per row: f32 logits after edits, then candidates' 64-bit orders.
inline int64_t SampleScratchBytes(int64_t rows, int64_t vocab) { return rows * vocab * 12; }

// logits f32; rows, edits, out [count] and scratch are device memory, scratch of
// SampleScratchBytes(count, logits.cols), 8-byte aligned.
void SampleKernel(ConstMatrix logits, const SampleRow* rows, const LogitEdit* edits, int count,
                  void* scratch, SampleOut* out, CudaStream stream);

}  // namespace skein::engine
