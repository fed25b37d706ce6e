#include "services/router/api/identity.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/http/request_id.h"
#include "services/tracing/context.h"

namespace skein::services {
namespace {

struct Alias {
  const char* header;
  enum { kSession, kTenant, kPriorityName, kPriorityNumber, kTtftGoal, kTpotGoal } meaning;
};

// Agents, gateways and load generators that send them: Dynamo, Claude Code, OpenCode, Codex,
// AIPerf, llm-d, SMG.
constexpr Alias kAliases[] = {
    {"x-session-id", Alias::kSession},
    {"x-dynamo-session-id", Alias::kSession},
    {"x-claude-code-session-id", Alias::kSession},
    {"session-id", Alias::kSession},
    {"x-session-affinity", Alias::kSession},
    {"x-session-token", Alias::kSession},
    {"x-smg-routing-key", Alias::kSession},
    {"x-llm-d-inference-fairness-id", Alias::kTenant},
    {"x-smg-tenant-id", Alias::kTenant},
    {"x-dynamo-request-priority", Alias::kPriorityNumber},
    {"x-dynamo-request-strict-priority", Alias::kPriorityNumber},
    {"x-llm-d-inference-objective", Alias::kPriorityName},
    {"x-smg-priority", Alias::kPriorityName},
    {"x-llm-d-slo-ttft-ms", Alias::kTtftGoal},
    {"x-slo-ttft-ms", Alias::kTtftGoal},
    {"x-llm-d-slo-tpot-ms", Alias::kTpotGoal},
    {"x-slo-tpot-ms", Alias::kTpotGoal},
};

bool IsInt32(std::string_view text) {
  int32_t number = 0;
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &number);
}

openai::ApiError BadPriority(const Alias& alias) {
  const std::string wanted = alias.meaning == Alias::kPriorityNumber
                                 ? "an integer of 32 bits"
                                 : "a name of 1 to 128 printable ASCII characters";
  return openai::InvalidParam(alias.header,
                              absl::StrCat("Header ", alias.header, " must be ", wanted, "."));
}

constexpr double kGoalMsMax = 86'400'000;  // a day

// False: it is no time in milliseconds, above 0 and at most a day.
bool ReadGoal(std::string_view text, int64_t* goal_us) {
  double ms = 0;
  const bool number = absl::SimpleAtod(absl::string_view(text.data(), text.size()), &ms) &&
                      ms > 0 && ms <= kGoalMsMax;
  if (number) *goal_us = std::max<int64_t>(1, static_cast<int64_t>(ms * 1000));
  return number;
}

}  // namespace

std::string TraceparentOf(const http::Request& request) {
  const auto context = ParseTraceparent(request.Get("traceparent"));
  return context.has_value() ? FormatTraceparent(*context) : "";
}

// FNV-1a (Fowler, Noll and Vo), 64 bits.
uint64_t AffinityOf(const ClientHints& hints) {
  if (hints.session.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : hints.session) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash == 0 ? 1 : hash;
}

openai::MaybeError ReadHints(const std::vector<http::Header>& headers, ClientHints* hints) {
  for (const Alias& alias : kAliases) {
    const std::string value(http::FindHeader(headers, alias.header));
    if (value.empty()) continue;
    if (alias.meaning == Alias::kTtftGoal || alias.meaning == Alias::kTpotGoal) {
      int64_t* const goal_us =
          alias.meaning == Alias::kTtftGoal ? &hints->ttft_goal_us : &hints->tpot_goal_us;
      if (int64_t read_us = 0; !ReadGoal(value, &read_us)) {
        return openai::InvalidParam(
            alias.header, absl::StrCat("Header ", alias.header,
                                       " must be milliseconds, above 0 and at most 86400000."));
      } else if (*goal_us == 0) {
        *goal_us = read_us;
      }
      continue;
    }
    const bool plain = http::IsPlainName(value);
    const bool number = alias.meaning == Alias::kPriorityNumber;
    if (number || alias.meaning == Alias::kPriorityName) {
      if (!plain || (number && !IsInt32(value))) return BadPriority(alias);
      if (hints->priority.empty()) hints->priority = absl::StrCat(alias.header, ": ", value);
      continue;
    }
    std::string& name = alias.meaning == Alias::kSession ? hints->session : hints->tenant;
    if (plain && name.empty()) name = value;
  }
  return std::nullopt;
}

}  // namespace skein::services
