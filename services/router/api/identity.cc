#include "services/router/api/identity.h"

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
  enum { kSession, kTenant, kPriorityName, kPriorityNumber } meaning;
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
