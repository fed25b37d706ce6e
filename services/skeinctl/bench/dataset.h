// The prompts of a load and the lengths of their answers. Pure except for reading files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::services::bench {

// How to make a prompt that has no text. Token ids have an exact length, and every server's
// /v1/completions takes them; words are about one token each and work in a chat.
enum class PromptForm { kTokens, kWords };

struct LoadRequest {
  std::variant<std::string, std::vector<int32_t>> prompt;
  int64_t input_tokens = 0;    // 0: unknown until the server reports it
  int64_t output_tokens = 0;   // requested; 0: the server's default
  std::optional<double> at_s;  // in a recorded schedule
};

// Lengths around a mean: a normal distribution, at least 1.
struct LengthSpec {
  int64_t mean = 0;
  double deviation = 0;
};

// `count` unrelated prompts. The same seed gives the same prompts.
std::vector<LoadRequest> RandomRequests(int64_t count, LengthSpec input, LengthSpec output,
                                        PromptForm form, uint64_t seed);

// ShareGPT's JSON: a list of objects with "conversations". Takes the first "human" message and the
// "gpt" answer after it; entries without such a pair are skipped. The answer's tokens are estimated
// as a quarter of its characters, unless `output_tokens` > 0. INVALID_ARGUMENT: not such a list, or
// no usable entry.
absl::StatusOr<std::vector<LoadRequest>> ShareGptRequests(const std::string& json,
                                                          int64_t output_tokens);

// One prompt per line: a JSON object with "prompt" or "text_input" and optionally "output_length",
// or plain text. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<LoadRequest>> PromptLines(const std::string& text,
                                                     int64_t output_tokens);

// A recorded trace (trace_file.h) with its times. A prompt consists of blocks of `block_tokens`:
// equal hash ids give equal blocks, so prompts share the same prefixes as in the recording; the
// last block is cut to the prompt's length. A prompt without hash ids shares nothing.
// INVALID_ARGUMENT names a request whose ids do not fit its length.
absl::StatusOr<std::vector<LoadRequest>> TraceRequests(const std::string& text,
                                                       int64_t block_tokens, PromptForm form,
                                                       uint64_t seed);

// The first `count` requests, repeated from the start if there are fewer. Each round of recorded
// times starts after the previous one, plus the mean gap. REQUIRES requests.
std::vector<LoadRequest> Repeated(const std::vector<LoadRequest>& requests, int64_t count);

}  // namespace skein::services::bench
