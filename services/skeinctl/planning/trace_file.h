// Recorded requests, in one of three formats, recognised by the first line:
//  - CSV with the header arrival_s,prompt_tokens,output_tokens;
//  - Azure's LLM inference trace: CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens,
//    times like 2023-11-16 18:15:46.6805900;
//  - Mooncake's trace, which `router --record-trace` also writes: one JSON object per line with
//    timestamp (milliseconds), input_length and output_length, and optionally hash_ids, one per
//    block of the prompt's tokens (equal where prompts are equal up to that block's end); other
//    keys are ignored.
// Empty lines are skipped; line ends may be CR LF.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/workload.h"

namespace skein::services {

struct TracedRequest {
  scheduler::SimRequest request;
  std::vector<int64_t> hash_ids;  // empty: not in the trace
};

// The requests in order of arrival, the first at 0. INVALID_ARGUMENT names the line and the field:
// not a number, negative or not finite, a prompt of 0 tokens; or an unknown format.
absl::StatusOr<std::vector<TracedRequest>> ParseTraceWithBlocks(std::string_view text);
// The same without block hashes.
absl::StatusOr<std::vector<scheduler::SimRequest>> ParseTrace(std::string_view text);

// The same from a file; NOT_FOUND if it cannot be read.
absl::StatusOr<std::vector<TracedRequest>> LoadTraceWithBlocks(const std::string& path);
absl::StatusOr<std::vector<scheduler::SimRequest>> LoadTrace(const std::string& path);

}  // namespace skein::services
