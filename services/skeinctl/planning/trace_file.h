// Recorded requests. Three formats, told apart by their first line:
//  - CSV with the header arrival_s,prompt_tokens,output_tokens;
//  - Azure's LLM inference trace as it is: CSV with the header TIMESTAMP,ContextTokens,
//    GeneratedTokens, times like 2023-11-16 18:15:46.6805900;
//  - Mooncake's trace as it is, which `router --record-trace` writes too: one JSON object a line
//  with
//    timestamp (milliseconds), input_length and output_length, and perhaps hash_ids, one for each
//    block of the prompt's tokens (equal where prompts are equal up to the end of that block);
//    other keys are ignored.
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
  std::vector<int64_t> hash_ids;  // empty: the trace does not say
};

// The requests in order of arrival, the first at 0. INVALID_ARGUMENT names the line and the field:
// what is no number, is negative or not finite, a prompt of 0 tokens; or a file of no known format.
absl::StatusOr<std::vector<TracedRequest>> ParseTraceWithBlocks(std::string_view text);
// The same without the blocks.
absl::StatusOr<std::vector<scheduler::SimRequest>> ParseTrace(std::string_view text);

// The same of a file; NOT_FOUND when it cannot be read.
absl::StatusOr<std::vector<TracedRequest>> LoadTraceWithBlocks(const std::string& path);
absl::StatusOr<std::vector<scheduler::SimRequest>> LoadTrace(const std::string& path);

}  // namespace skein::services
