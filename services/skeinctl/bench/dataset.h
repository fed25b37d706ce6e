// The prompts of a load, and the lengths of their answers. Pure but for reading files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::services::bench {

// How a prompt without a text of its own is made. Token ids are exact in length, and every server's
// /v1/completions takes them; words are about one token each and are what a chat can say.
enum class PromptForm { kTokens, kWords };

struct LoadRequest {
  std::variant<std::string, std::vector<int32_t>> prompt;
  int64_t input_tokens = 0;    // 0: unknown before the server says
  int64_t output_tokens = 0;   // asked for; 0: the server's default
  std::optional<double> at_s;  // of a recorded schedule
};

// Lengths around a mean: a normal distribution cut at 1.
struct LengthSpec {
  int64_t mean = 0;
  double deviation = 0;
};

// `count` prompts with nothing in common. The same seed gives the same ones.
std::vector<LoadRequest> RandomRequests(int64_t count, LengthSpec input, LengthSpec output,
                                        PromptForm form, uint64_t seed);

// ShareGPT's JSON: a list of objects with "conversations", of which the first thing said by "human"
// and the answer by "gpt" after it are taken. A quarter of the answer's characters stands for its
// tokens, unless `output_tokens` > 0. What has no such pair is left out. INVALID_ARGUMENT: no such
// list, or nothing in it.
absl::StatusOr<std::vector<LoadRequest>> ShareGptRequests(const std::string& json,
                                                          int64_t output_tokens);

// A line a prompt: a JSON object with "prompt" or "text_input" and perhaps "output_length", or the
// text itself. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<LoadRequest>> PromptLines(const std::string& text,
                                                     int64_t output_tokens);

// A recorded trace (trace_file.h), with its times. A prompt is made of blocks of `block_tokens`:
// equal hash ids give equal blocks, so what prompts share they share again; the last block is cut
// to the prompt's length. A prompt without hash ids shares nothing. INVALID_ARGUMENT names a
// request whose ids cannot be those of its length.
absl::StatusOr<std::vector<LoadRequest>> TraceRequests(const std::string& text,
                                                       int64_t block_tokens, PromptForm form,
                                                       uint64_t seed);

// The first `count`, from the start again when there are fewer. Recorded times go on: each round
// follows the last after the mean gap. REQUIRES requests.
std::vector<LoadRequest> Repeated(const std::vector<LoadRequest>& requests, int64_t count);

}  // namespace skein::services::bench
