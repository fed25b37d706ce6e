#include "services/skeinctl/bench/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "scheduler/simulator/random.h"
#include "services/skeinctl/planning/trace_file.h"

namespace skein::services::bench {
namespace {

using Json = nlohmann::json;
using scheduler::Random;

// Every vocabulary has these ids, and at most the first three are special.
constexpr int32_t kFirstToken = 3;
constexpr int32_t kTokens = 253;

// Short words that are one token each in common vocabularies.
constexpr std::array<const char*, 64> kWords = {
    "the",  "of",    "and",   "to",    "in",   "is",    "that", "it",   "was",   "for",   "on",
    "are",  "with",  "as",    "at",    "be",   "this",  "have", "from", "or",    "one",   "had",
    "by",   "word",  "but",   "not",   "what", "all",   "were", "we",   "when",  "your",  "can",
    "said", "there", "use",   "an",    "each", "which", "she",  "do",   "how",   "their", "if",
    "will", "up",    "other", "about", "out",  "many",  "then", "them", "these", "so",    "some",
    "her",  "would", "make",  "like",  "him",  "into",  "time", "has",  "look"};

// A prompt under construction.
class PromptBuilder {
 public:
  explicit PromptBuilder(PromptForm form) : form_(form) {}

  void Add(int64_t tokens, Random* random) {
    for (int64_t i = 0; i < tokens; ++i) {
      if (form_ == PromptForm::kTokens) {
        ids_.push_back(kFirstToken + static_cast<int32_t>(random->Below(kTokens)));
      } else {
        if (!text_.empty()) text_ += ' ';
        text_ += kWords[random->Below(kWords.size())];
      }
    }
  }
  std::variant<std::string, std::vector<int32_t>> Take() {
    if (form_ == PromptForm::kTokens) return std::move(ids_);
    return std::move(text_);
  }

 private:
  const PromptForm form_;
  std::vector<int32_t> ids_;
  std::string text_;
};

int64_t Length(const LengthSpec& spec, Random* random) {
  if (spec.deviation <= 0) return spec.mean;
  return std::max<int64_t>(
      1, std::llround(static_cast<double>(spec.mean) + spec.deviation * random->Normal()));
}

std::string TextAt(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// The first question and its answer; empty if there are none.
std::pair<std::string, std::string> FirstTurn(const Json& entry) {
  const auto turns = entry.is_object() ? entry.find("conversations") : entry.end();
  if (!entry.is_object() || turns == entry.end() || !turns->is_array()) return {};
  for (size_t i = 0; i + 1 < turns->size(); ++i) {
    const Json& asked = (*turns)[i];
    const Json& answer = (*turns)[i + 1];
    if (!asked.is_object() || !answer.is_object()) continue;
    if (TextAt(asked, "from") != "human" || TextAt(answer, "from") != "gpt") continue;
    return {TextAt(asked, "value"), TextAt(answer, "value")};
  }
  return {};
}

absl::StatusOr<LoadRequest> PromptLine(const std::string& line, int64_t output_tokens) {
  LoadRequest request;
  request.output_tokens = output_tokens;
  request.prompt = line;
  if (line.front() != '{') return request;
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  std::string text = TextAt(json, "prompt");
  if (text.empty()) text = TextAt(json, "text_input");
  if (text.empty())
    return absl::InvalidArgumentError("neither 'prompt' nor 'text_input' is a string");
  request.prompt = std::move(text);
  const auto length = json.find("output_length");
  if (length == json.end()) return request;
  if (!length->is_number_integer() || *length < 1 || *length > int64_t{1} << 30) {
    return absl::InvalidArgumentError("output_length is not a whole number above 0");
  }
  request.output_tokens = length->get<int64_t>();
  return request;
}

}  // namespace

std::vector<LoadRequest> RandomRequests(int64_t count, LengthSpec input, LengthSpec output,
                                        PromptForm form, uint64_t seed) {
  Random random(seed);
  std::vector<LoadRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    LoadRequest& request = requests.emplace_back();
    request.input_tokens = Length(input, &random);
    request.output_tokens = Length(output, &random);
    PromptBuilder prompt(form);
    prompt.Add(request.input_tokens, &random);
    request.prompt = prompt.Take();
  }
  return requests;
}

absl::StatusOr<std::vector<LoadRequest>> ShareGptRequests(const std::string& json,
                                                          int64_t output_tokens) {
  constexpr size_t kCharactersOfToken = 4;
  const Json entries = Json::parse(json, nullptr, false);
  if (!entries.is_array()) return absl::InvalidArgumentError("not a JSON list of conversations");
  std::vector<LoadRequest> requests;
  for (const Json& entry : entries) {
    auto [asked, answer] = FirstTurn(entry);
    if (asked.empty() || answer.empty()) continue;
    LoadRequest& request = requests.emplace_back();
    request.prompt = std::move(asked);
    request.output_tokens =
        output_tokens > 0
            ? output_tokens
            : static_cast<int64_t>(std::max<size_t>(1, answer.size() / kCharactersOfToken));
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError("no conversation in which 'gpt' answers a 'human'");
  }
  return requests;
}

absl::StatusOr<std::vector<LoadRequest>> PromptLines(const std::string& text,
                                                     int64_t output_tokens) {
  std::vector<LoadRequest> requests;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    auto request = PromptLine(std::string(line), output_tokens);
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", request.status().message()));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("the file has no prompts");
  return requests;
}

absl::StatusOr<std::vector<LoadRequest>> TraceRequests(const std::string& text,
                                                       int64_t block_tokens, PromptForm form,
                                                       uint64_t seed) {
  const auto traced = ParseTraceWithBlocks(text);
  if (!traced.ok()) return traced.status();
  std::vector<LoadRequest> requests;
  for (const auto& [request, hash_ids] : *traced) {
    const auto blocks = static_cast<int64_t>(hash_ids.size());
    if (blocks * block_tokens - request.prompt_tokens >= block_tokens && blocks > 0) {
      return absl::InvalidArgumentError(absl::StrCat("request ", requests.size(), ": ", blocks,
                                                     " hash_ids for ", request.prompt_tokens,
                                                     " tokens in blocks of ", block_tokens));
    }
    PromptBuilder prompt(form);
    int64_t left = request.prompt_tokens;
    for (const int64_t id : hash_ids) {
      // The content of a block depends on its id only.
      Random random(seed ^ (static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15ULL + 1));
      const int64_t tokens = std::min(left, block_tokens);
      prompt.Add(tokens, &random);
      left -= tokens;
    }
    // Tokens without an id are unique to this prompt.
    Random random(~seed ^ (requests.size() + 1) * 0xbf58476d1ce4e5b9ULL);
    prompt.Add(left, &random);
    requests.push_back(
        {prompt.Take(), request.prompt_tokens, request.output_tokens, request.arrival_s});
  }
  return requests;
}

std::vector<LoadRequest> Repeated(const std::vector<LoadRequest>& requests, int64_t count) {
  std::vector<LoadRequest> all;
  const double last_s = requests.back().at_s.value_or(0);
  const double gap_s = requests.size() > 1 ? last_s / static_cast<double>(requests.size() - 1) : 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto size = static_cast<int64_t>(requests.size());
    all.push_back(requests[static_cast<size_t>(i % size)]);
    if (all.back().at_s.has_value()) {
      *all.back().at_s += static_cast<double>(i / size) * (last_s + gap_s);
    }
  }
  return all;
}

}  // namespace skein::services::bench
