// From a step's sequences to the rows of a forward pass, and from logits to the step's results:
// what every way to run a model does the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/engine.h"
#include "engine/model/forward/forward.h"
#include "engine/sampling/samplers.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

// Why a row's logits are wanted.
struct LogitUse {
  size_t sequence = 0;
  size_t token = 0;  // index in the sequence's tokens
};

// The batch of `sequences` end to end, but for those whose result is not OK; uses[i] belongs to
// batch.logit_rows[i]. Both are emptied first.
void FillBatch(std::span<const SequenceStep> sequences, std::span<const SequenceResult> results,
               Batch* batch, std::vector<LogitUse>* uses);

// Logits f32 [count, vocabulary] of the rows uses[first … first + count), valid until the next
// call.
using LogitsOf = std::function<absl::StatusOr<ConstMatrix>(int64_t first, int64_t count)>;

// Samples, scores and copies what `sequences` ask for, on all threads of `samplers`, asking for at
// most `rows_max` rows at a time. results[i] is of sequences[i], empty or not OK (it is then left
// alone); a row that cannot be used is the status of its sequence. Errors are those of `logits_of`.
absl::Status UseLogits(std::span<const SequenceStep> sequences, std::span<const LogitUse> uses,
                       const LogitsOf& logits_of, int64_t rows_max, Samplers& samplers,
                       std::vector<SequenceResult>& results);

// Whether `sampler` can answer all that the sequences that run ask for: none wants raw logits.
bool TakesAll(const TokenSampler& sampler, std::span<const SequenceStep> sequences,
              std::span<const SequenceResult> results);

// As UseLogits, with logits that stay on the device; errors are the sampler's, too. REQUIRES:
// TakesAll.
absl::Status SampleOnDevice(std::span<const SequenceStep> sequences, std::span<const LogitUse> uses,
                            const LogitsOf& logits_of, int64_t rows_max, TokenSampler& sampler,
                            std::vector<SequenceResult>& results);

}  // namespace skein::engine
