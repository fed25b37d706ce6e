#include "services/skeinctl/chaos/handoff_load.h"

#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services::chaos {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDifferent = 4;  // requests
constexpr int64_t kStreams = 8;    // at a time
constexpr int64_t kOutputTokens = 2;
constexpr auto kSeenWithin = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(2);

LoadOptions WithLongPrompts(LoadOptions load, int64_t prompt_tokens, uint64_t seed) {
  const auto prompts = bench::RandomRequests(kDifferent, {.mean = prompt_tokens, .deviation = 0},
                                             {.mean = kOutputTokens, .deviation = 0},
                                             bench::PromptForm::kTokens, seed);
  load.requests.clear();
  load.requests.reserve(prompts.size());
  for (const auto& one : prompts) {
    load.requests.push_back({.kind = "handoff",
                             .prompt = std::get<std::vector<int32_t>>(one.prompt),
                             .output_tokens = kOutputTokens,
                             .temperature = 0,
                             .seed = seed});
  }
  load.streams = kStreams;
  return load;
}

}  // namespace

std::vector<std::string> HandoffsUnderWay(const v1::ListRequestsResponse& requests) {
  std::vector<std::string> names;
  for (const v1::RequestExplanation& one : requests.requests()) {
    const bool under_way = one.has_placed_s() && !one.has_prefilled_s() && !one.has_ended_s();
    if (under_way) {
      names.push_back(absl::StrFormat("%d/%d", one.id().router(), one.id().serial()));
    }
  }
  return names;
}

void AddCounts(const Row& other, Row* row) {
  row->Add(other);
  for (const auto& [kind, counts] : other.kinds) row->kinds[kind].Add(counts);
  for (const auto& [error, count] : other.errors) row->errors[error] += count;
}

HandoffLoad::HandoffLoad(LoadOptions load, int64_t prompt_tokens, uint64_t seed, Requests requests)
    : options_(WithLongPrompts(std::move(load), prompt_tokens, seed)),
      requests_(std::move(requests)) {}

absl::Status HandoffLoad::Prepare() {
  if (load_ != nullptr) return absl::OkStatus();
  auto load = std::make_unique<ChaosLoad>(options_);
  if (absl::Status open = load->Open(); !open.ok()) return open;
  std::vector<Reference> references;
  references.reserve(options_.requests.size());
  for (size_t i = 0; i < options_.requests.size(); ++i) {
    const auto record = load->Alone(i);
    if (!record.ok()) return record.status();
    references.push_back(ReferenceOf(options_.requests[i], *record));
  }
  references_ = std::move(references);
  load_ = std::move(load);
  return absl::OkStatus();
}

void HandoffLoad::Start() { load_->Start(); }

absl::StatusOr<std::string> HandoffLoad::AwaitHandoff() const {
  const auto until = Clock::now() + kSeenWithin;
  while (Clock::now() < until) {
    if (StopSignalled()) return absl::AbortedError("interrupted");
    const auto requests = requests_();
    const auto found = requests.ok() ? HandoffsUnderWay(*requests) : std::vector<std::string>();
    if (!found.empty()) return found.front();
    WaitUnlessStopped(kLook);
  }
  return absl::DeadlineExceededError(absl::StrFormat(
      "no handoff was seen under way within %d s: prompts are over too soon; give more "
      "--handoff-prompt-tokens",
      kSeenWithin.count()));
}

Row HandoffLoad::Stop(const std::vector<FaultMark>& marks) {
  return RowOf("", load_->Stop(), references_, marks, 0, nullptr);
}

}  // namespace skein::services::chaos
