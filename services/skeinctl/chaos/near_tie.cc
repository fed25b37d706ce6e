#include "services/skeinctl/chaos/near_tie.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::json;

// Alternatives that are asked for: the reference's token is one of the two that nearly tie.
constexpr int kTop = 5;

absl::Status NoScores(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the answer has no scores: ", why));
}

// "token_id:17"; -1: it is none.
int32_t IdOf(absl::string_view name) {
  int32_t id = -1;
  return absl::ConsumePrefix(&name, "token_id:") && absl::SimpleAtoi(name, &id) ? id : -1;
}

double BestOf(const ForcedToken& token) {
  double best = token.logprob;
  for (const auto& [id, logprob] : token.top) best = std::max(best, logprob);
  return best;
}

}  // namespace

std::string ForcingBody(const std::string& model, const std::vector<int32_t>& prompt,
                        const std::vector<int32_t>& tokens) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  return Json({{"model", model},
               {"prompt", all},
               {"max_tokens", 0},
               {"echo", true},
               {"logprobs", kTop},
               {"return_tokens_as_token_ids", true}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::vector<ForcedToken>> ParseForced(const std::string& body,
                                                     size_t prompt_tokens) {
  const Json json = Json::parse(body, nullptr, false);
  const auto at = [](const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() ? *it : Json();
  };
  const Json choices = at(json, "choices");
  if (!choices.is_array() || choices.empty()) return NoScores(body.substr(0, 200));
  const Json scores = at(choices[0], "logprobs");
  const Json logprobs = at(scores, "token_logprobs");
  const Json tops = at(scores, "top_logprobs");
  if (!logprobs.is_array() || !tops.is_array() || logprobs.size() != tops.size()) {
    return NoScores("logprobs are missing");
  }
  std::vector<ForcedToken> forced;
  for (size_t i = prompt_tokens; i < logprobs.size(); ++i) {
    if (!logprobs[i].is_number() || !tops[i].is_object()) return NoScores("a token has none");
    ForcedToken& token = forced.emplace_back();
    token.logprob = logprobs[i].get<double>();
    for (const auto& [name, logprob] : tops[i].items()) {
      if (!logprob.is_number()) return NoScores("an alternative has none");
      token.top[IdOf(name)] = logprob.get<double>();
    }
  }
  return forced;
}

bool IsNearTie(const std::vector<ForcedToken>& forced, size_t parted, int32_t reference_token) {
  if (parted >= forced.size()) return false;
  const auto reference = forced[parted].top.find(reference_token);
  if (reference == forced[parted].top.end()) return false;
  if (BestOf(forced[parted]) - reference->second > kNearTieNats) return false;
  return std::all_of(
      forced.begin() + static_cast<std::ptrdiff_t>(parted), forced.end(),
      [](const ForcedToken& one) { return BestOf(one) - one.logprob <= kNearTieNats; });
}

}  // namespace skein::services::chaos
