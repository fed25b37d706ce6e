#include "services/skeinctl/chaos/load_mix.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "nlohmann/json.hpp"
#include "services/skeinctl/bench/dataset.h"

namespace skein::services::chaos {
namespace {

constexpr double kTemperature = 0.8;  // of sampled requests
constexpr double kPenalty = 0.5;
constexpr size_t kStopBytes = 12;

StreamRequest Sampled(const std::string& kind) {
  return {.kind = kind, .prompt = {}, .message = "", .temperature = kTemperature, .stop = ""};
}

StreamRequest Greedy(const std::string& kind) {
  return {.kind = kind, .prompt = {}, .message = "", .stop = ""};
}

// The kinds by turns. Only the kind "chat" gets its message later.
std::vector<StreamRequest> Kinds() {
  StreamRequest choices = Sampled("choices");
  choices.choices = 2;
  StreamRequest logprobs = Greedy("logprobs");
  logprobs.logprobs = true;
  StreamRequest whole = Greedy("whole");
  whole.streamed = false;
  StreamRequest penalties = Sampled("penalties");
  penalties.penalty = kPenalty;
  return {Greedy("greedy"), Sampled("sampled"), Greedy("chat"), choices,
          logprobs,         Sampled("stop"),    whole,          penalties};
}

// The number of short requests beside `longs` others.
int64_t ShortOnes(int64_t longs, double share) {
  return std::llround(static_cast<double>(longs) * share / (1 - share));
}

// Puts `shorts` evenly between the others.
std::vector<StreamRequest> Between(std::vector<StreamRequest> longs,
                                   std::vector<StreamRequest> shorts) {
  std::vector<StreamRequest> all;
  all.reserve(longs.size() + shorts.size());
  size_t put = 0;
  for (size_t i = 0; i < longs.size(); ++i) {
    all.push_back(std::move(longs[i]));
    for (; put < shorts.size() * (i + 1) / longs.size(); ++put) {
      all.push_back(std::move(shorts[put]));
    }
  }
  return all;
}

bool IsPlain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::vector<StreamRequest> MixedRequests(const MixOptions& options) {
  const int64_t shorts = ShortOnes(options.requests, options.short_share);
  const bench::LengthSpec input{.mean = options.prompt_tokens, .deviation = 0};
  const bench::LengthSpec output{.mean = options.tokens, .deviation = 0};
  const auto ids = bench::RandomRequests(options.requests + shorts, input, output,
                                         bench::PromptForm::kTokens, options.seed);
  const auto words = bench::RandomRequests(options.requests, input, output,
                                           bench::PromptForm::kWords, options.seed);
  const std::vector<StreamRequest> kinds = Kinds();
  std::vector<StreamRequest> requests;
  requests.reserve(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    StreamRequest request = kinds[i % kinds.size()];
    request.prompt = std::get<std::vector<int32_t>>(ids[i].prompt);
    if (request.kind == "chat") request.message = std::get<std::string>(words[i].prompt);
    request.output_tokens =
        options.tokens + options.tokens * static_cast<int64_t>(i) / options.requests;
    request.seed = options.seed + i;
    requests.push_back(std::move(request));
  }
  std::vector<StreamRequest> short_ones;
  short_ones.reserve(static_cast<size_t>(shorts));
  for (size_t i = words.size(); i < ids.size(); ++i) {
    StreamRequest request = i % 2 == 0 ? Greedy("short") : Sampled("short");
    request.prompt = std::get<std::vector<int32_t>>(ids[i].prompt);
    request.output_tokens = options.short_tokens;
    request.seed = options.seed + i;
    short_ones.push_back(std::move(request));
  }
  return Between(std::move(requests), std::move(short_ones));
}

std::string StopIn(const std::string& text) {
  for (size_t at = text.size() * 4 / 5; at + kStopBytes <= text.size(); ++at) {
    std::string stop = text.substr(at, kStopBytes);
    if (IsPlain(stop) && text.find(stop) == at) return stop;
  }
  return "";
}

std::string PathOf(const StreamRequest& request) {
  return request.message.empty() ? "/v1/completions" : "/v1/chat/completions";
}

std::string BodyOf(const std::string& model, const StreamRequest& request) {
  using Json = nlohmann::ordered_json;
  const bool chat = !request.message.empty();
  Json body = {{"model", model},       {"max_tokens", request.output_tokens},
               {"ignore_eos", true},   {"temperature", request.temperature},
               {"seed", request.seed}, {"return_token_ids", true}};
  if (chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", request.message}}});
  } else {
    body["prompt"] = request.prompt;
  }
  if (request.penalty != 0) {
    body["frequency_penalty"] = request.penalty;
    body["presence_penalty"] = request.penalty;
  }
  if (request.choices > 1) body["n"] = request.choices;
  if (request.logprobs) body["logprobs"] = chat ? Json(true) : Json(0);
  if (!request.stop.empty()) body["stop"] = request.stop;
  if (request.streamed) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace skein::services::chaos
