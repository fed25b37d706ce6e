#include "tests/sim/long_limits.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "tests/sim/answers.h"

namespace skein::sim {
namespace {

constexpr char kLostItsGroup[] = "the bound group that computed the request has ended (";
constexpr char kNoneBound[] = "; none can be bound: ";
constexpr char kNoGroupComputes[] = "; a group does not compute ";

int64_t TokensOf(const scheduler::RequestSpec& spec) {
  return scheduler::PromptTokens(spec) + spec.max_tokens;
}

// Its lead tells it, and names what one instance holds.
bool SaysThatItLostItsGroup(const Scenario& scenario, const ClientPlan& plan,
                            const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.rfind("prompt + max_tokens: ");
  long long tokens = 0, alone = 0;
  const bool told = absl::IsUnavailable(status) && absl::StrContains(message, kLostItsGroup) &&
                    at != std::string::npos &&
                    std::sscanf(message.c_str() + at,
                                "prompt + max_tokens: %lld tokens exceed the KV cache of this "
                                "instance, %lld tokens",
                                &tokens, &alone) == 2;
  return told && tokens == TokensOf(*plan.spec) && alone == TokensOfGroup(scenario, 1);
}

}  // namespace

int64_t TokensOfGroup(const Scenario& scenario, int size) {
  const engine::EmulatedOptions options =
      EngineOptions(scheduler::Role::kDecode, scenario.kv_heads);
  // Each keeps a part of the heads of every token, at least one head.
  const int64_t parts = std::min(size, scenario.kv_heads);
  const int64_t tokens = parts * scenario.decode_blocks * options.kv.block_tokens;
  return std::min<int64_t>(tokens, scenario.max_positions);
}

std::optional<LongLimits> LongLimitsOf(const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.find("prompt + max_tokens: ");
  if (at == std::string::npos) return std::nullopt;
  const char* const text = message.c_str() + at;
  long long tokens = 0, largest = 0, widest_tokens = 0;
  int widest = 1, end = 0, widest_end = 0;
  std::sscanf(text,
              "prompt + max_tokens: %lld tokens fit no decode instance; the largest takes %lld%n, "
              "their widest group, bound(%d), takes %lld%n",
              &tokens, &largest, &end, &widest, &widest_tokens, &widest_end);
  if (end == 0) return std::nullopt;
  if (widest_end == 0) {
    widest = 1;
    widest_tokens = largest;
  }
  return LongLimits{.tokens = tokens,
                    .largest = largest,
                    .widest = widest,
                    .widest_tokens = widest_tokens,
                    .more = text + std::max(end, widest_end)};
}

bool LacksGroup(const Scenario& scenario, const ClientPlan& plan, const absl::Status& status) {
  if (!plan.needs_group) return false;
  if (SaysThatItLostItsGroup(scenario, plan, status)) return true;
  const std::optional<LongLimits> limits = LongLimitsOf(status);
  const bool right = limits.has_value() && limits->tokens == TokensOf(*plan.spec) &&
                     limits->largest == TokensOfGroup(scenario, 1) &&
                     limits->widest_tokens == TokensOfGroup(scenario, limits->widest);
  if (!right) return false;
  if (absl::IsUnavailable(status)) return absl::StartsWith(limits->more, kNoneBound);
  if (!absl::IsInvalidArgument(status)) return false;
  if (limits->more.empty()) return limits->tokens > limits->widest_tokens;
  if (absl::StartsWith(limits->more, kNoGroupComputes)) {
    return plan.spec->want_prompt_logprobs || plan.spec->max_tokens == 0;
  }
  return absl::StartsWith(limits->more, kNoneBound) && OperatorsMayKeepGroups(scenario);
}

}  // namespace skein::sim
