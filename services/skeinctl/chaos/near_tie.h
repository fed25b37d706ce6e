// Near ties: whether a greedy answer that differs from its reference could have come from the same
// model. Pure.
//
// Without reproducible sums the logits of a token differ in their last digits, by the batch in
// which they are computed: a resumed stream computes as a prompt what was computed token by token
// before. Where two tokens are about equally likely, another one may be the most likely one then,
// and all that follows differs. Teacher forcing tells this from a mistake: the model computes the
// log-probabilities of the answer's own tokens, each behind those before it. Each must be the most
// likely token within the margin, and so must be the reference's token where they part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/stream_record.h"

namespace skein::services::chaos {

// Two log-probabilities that are closer, in nats, are a near tie.
//
// Logits are dot products of activations, in 32-bit floats with a relative error of 2^-24 for each
// addition. Over some 30 layers with sums of some 10^3 to 10^4 terms the errors, which partly
// cancel out, add up to about 2^-24 * sqrt(30 * 10^4), 3 * 10^-5 of logits of a size of 10 to 30:
// below 10^-3. Activations that are rounded to 16 bits would need more.
inline constexpr double kNearTieNats = 1e-3;

// The body of a POST to /v1/completions that has the model score `prompt` and `tokens`, and sample
// nothing.
std::string ForcingBody(const std::string& model, const std::vector<int32_t>& prompt,
                        const std::vector<int32_t>& tokens);

// One token of an answer, behind those before it.
struct ForcedToken {
  double logprob = 0;
  std::map<int32_t, double> top;  // most likely tokens, by id
};

// The tokens behind the first `prompt_tokens`, from the answer to ForcingBody. INVALID_ARGUMENT:
// it is no such answer.
absl::StatusOr<std::vector<ForcedToken>> ParseForced(const std::string& body, size_t prompt_tokens);

// `parted`: the first token that differs. `reference_token`: the other answer's there. `forced`: of
// the answer's tokens, one each.
bool IsNearTie(const std::vector<ForcedToken>& forced, size_t parted, int32_t reference_token);

}  // namespace skein::services::chaos
