// The kinds of requests of the load, and how they are sent. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/skeinctl/chaos/stream_record.h"

namespace skein::services::chaos {

struct MixOptions {
  int64_t requests = 1;
  int64_t prompt_tokens = 1;
  int64_t tokens = 1;  // of the shortest answer; the longest is nearly twice as long
  uint64_t seed = 1;
  double short_share = 0;  // of all requests; below 1. The short ones come in addition
  int64_t short_tokens = 1;
};

// Requests of each kind by turns: greedy, sampled, chat, choices (n = 2), logprobs, stop (its text
// is set later, by StopIn), whole (not streamed), penalties. Every other one is greedy, the rest
// are sampled with a seed. Their lengths differ, so that they do not end together. Between them are
// short ones of the kind "short", streamed, by turns greedy and sampled.
std::vector<StreamRequest> MixedRequests(const MixOptions& options);

// A text that occurs in the last fifth of `text` and nowhere before; empty: there is none.
std::string StopIn(const std::string& text);

// "/v1/chat/completions" or "/v1/completions".
std::string PathOf(const StreamRequest& request);

// The body of a request, which asks for the ids of tokens.
std::string BodyOf(const std::string& model, const StreamRequest& request);

}  // namespace skein::services::chaos
