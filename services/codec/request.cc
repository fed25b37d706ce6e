#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

constexpr size_t kMaxTenantBytes = 256;
constexpr int64_t kMaxTenantWeight = 1'000'000;
constexpr size_t kMaxTraceparentBytes = 64;

absl::Status CheckNames(const v1::RequestSpec& spec) {
  constexpr int kMaxNames = 4;
  constexpr size_t kMaxNameBytes = 256;
  if (spec.names_size() > kMaxNames) return Invalid("names", "has too many entries");
  for (const std::string& name : spec.names()) {
    if (name.size() > kMaxNameBytes) return Invalid("names", "has an entry of more than 256 bytes");
  }
  return absl::OkStatus();
}

int64_t SentTokens(const v1::RequestSpec& spec) {
  return static_cast<int64_t>(spec.sent().size() / sizeof(int32_t));
}

// Of the fields of RequestHead.
absl::Status CheckHead(const v1::RequestSpec& spec) {
  if (spec.model().empty()) return Invalid("model", "is empty");
  if (spec.prompt().empty()) return Invalid("prompt", "has no tokens");
  for (const auto& [field, bytes] : {std::pair("prompt", &spec.prompt()), {"sent", &spec.sent()}}) {
    if (bytes->size() % sizeof(int32_t) == 0) continue;
    return Invalid(field, absl::StrCat(bytes->size(), " bytes are not whole tokens"));
  }
  if (spec.max_tokens() > kMaxCount) return TooLarge("max_tokens", spec.max_tokens(), kMaxCount);
  if (SentTokens(spec) > 0 && SentTokens(spec) >= spec.max_tokens()) {
    return Invalid(
        "sent", absl::StrCat(SentTokens(spec), " tokens, and max_tokens is ", spec.max_tokens()));
  }
  if (const auto deadline_us = DurationFrom("deadline_us", spec.deadline_us()); !deadline_us.ok()) {
    return deadline_us.status();
  }
  for (const auto& [field, goal_us] :
       {std::pair("ttft_goal_us", spec.ttft_goal_us()), {"tpot_goal_us", spec.tpot_goal_us()}}) {
    if (const auto us = DurationFrom(field, goal_us); !us.ok()) return us.status();
  }
  if (spec.tenant().size() > kMaxTenantBytes) return Invalid("tenant", "has more than 256 bytes");
  if (spec.tenant_weight() > kMaxTenantWeight) {
    return TooLarge("tenant_weight", spec.tenant_weight(), kMaxTenantWeight);
  }
  if (spec.traceparent().size() > kMaxTraceparentBytes) {
    return Invalid("traceparent", "has more than 64 bytes");
  }
  return CheckNames(spec);
}

// What RequestSpec and RequestHead both have behind the fields that planning needs.
template <class Out>
void ReadOrigin(const v1::RequestSpec& spec, Out* out) {
  out->tenant = spec.tenant();
  out->tenant_weight = std::max<int64_t>(1, spec.tenant_weight());
  out->ttft_goal_us = static_cast<int64_t>(spec.ttft_goal_us());
  out->tpot_goal_us = static_cast<int64_t>(spec.tpot_goal_us());
  out->traceparent = spec.traceparent();
}

absl::StatusOr<v1::RequestSpec> Parsed(const std::string& encoded) {
  v1::RequestSpec spec;
  if (spec.ParseFromString(encoded)) return spec;
  return Invalid("spec", "is not a serialised RequestSpec");
}

}  // namespace

absl::Status Invalid(std::string_view field, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": ", std::string(why)));
}

absl::Status TooLarge(std::string_view field, uint64_t value, int64_t max) {
  return Invalid(field, absl::StrCat(value, " exceeds the limit of ", max));
}

v1::RequestId ToProto(scheduler::RequestId id) {
  v1::RequestId out;
  out.set_router(id.router);
  out.set_serial(id.serial);
  return out;
}

absl::StatusOr<scheduler::RequestId> FromProto(const v1::RequestId& id) {
  if (id.router() == 0) return Invalid("id.router", "is 0");
  if (id.serial() == 0) return Invalid("id.serial", "is 0");
  return scheduler::RequestId{id.router(), id.serial()};
}

// Plain copies: the wire's byte order is that of every machine that Skein supports.
static_assert(std::endian::native == std::endian::little);

std::string PackTokens(std::span<const int32_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)};
}

std::vector<int32_t> UnpackTokens(const std::string& bytes) {
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(int32_t));
  return tokens;
}

v1::RequestSpec ToProto(const scheduler::RequestSpec& spec) {
  v1::RequestSpec out;
  *out.mutable_id() = ToProto(spec.id);
  out.set_model(spec.model);
  out.set_prompt(PackTokens(AskedPrompt(spec)));
  out.set_sent(PackTokens(SentOutput(spec)));
  out.set_max_tokens(static_cast<uint32_t>(spec.max_tokens + spec.sent_tokens));
  const int64_t sent_of_min = spec.min_tokens > 0 ? spec.sent_tokens : 0;
  out.set_min_tokens(static_cast<uint32_t>(spec.min_tokens + sent_of_min));
  out.mutable_stop_token_ids()->Add(spec.stop_token_ids.begin(), spec.stop_token_ids.end());
  out.set_sampling(spec.sampling);
  out.set_want_prompt_logprobs(spec.want_prompt_logprobs);
  out.set_priority(spec.priority);
  out.set_deadline_us(static_cast<uint64_t>(spec.deadline_us));
  for (const std::string& name : spec.names) out.add_names(name);
  if (spec.prompt_of.has_value()) *out.mutable_prompt_of() = ToProto(*spec.prompt_of);
  out.set_tenant(spec.tenant);
  if (spec.tenant_weight > 1) out.set_tenant_weight(static_cast<uint32_t>(spec.tenant_weight));
  out.set_ttft_goal_us(static_cast<uint64_t>(spec.ttft_goal_us));
  out.set_tpot_goal_us(static_cast<uint64_t>(spec.tpot_goal_us));
  out.set_traceparent(spec.traceparent);
  return out;
}

scheduler::HeadPtr Encode(const scheduler::RequestSpec& spec) {
  auto head = std::make_shared<scheduler::RequestHead>();
  head->id = spec.id;
  head->model = spec.model;
  head->prompt_tokens = PromptTokens(spec);
  head->max_tokens = spec.max_tokens;
  head->want_prompt_logprobs = spec.want_prompt_logprobs;
  head->priority = spec.priority;
  head->deadline_us = spec.deadline_us;
  head->names = spec.names;
  head->prompt_of = spec.prompt_of;
  head->tenant = spec.tenant;
  head->tenant_weight = spec.tenant_weight;
  head->ttft_goal_us = spec.ttft_goal_us;
  head->tpot_goal_us = spec.tpot_goal_us;
  head->traceparent = spec.traceparent;
  head->encoded = std::make_shared<const std::string>(ToProto(spec).SerializeAsString());
  return head;
}

// Two serialised messages, one after the other, are one: what the second has counts.
scheduler::HeadPtr EncodeAttempt(const scheduler::RequestHead& asked, scheduler::RequestId id,
                                 std::span<const int32_t> sent) {
  auto head = std::make_shared<scheduler::RequestHead>(asked);
  const auto tokens = static_cast<int64_t>(sent.size());
  v1::RequestSpec changed;
  *changed.mutable_id() = ToProto(id);
  changed.set_sent(PackTokens(sent));
  if (asked.deadline_us > 0) changed.set_deadline_us(static_cast<uint64_t>(asked.deadline_us));
  head->id = id;
  head->encoded = std::make_shared<const std::string>(*asked.encoded + changed.SerializeAsString());
  head->prompt_tokens += tokens;
  if (tokens == 0) return head;
  head->max_tokens -= tokens;
  head->want_prompt_logprobs = false;
  head->prompt_of.reset();
  return head;
}

absl::StatusOr<scheduler::RequestId> IdOfSpec(const std::string& encoded) {
  const absl::StatusOr<v1::RequestSpec> spec = Parsed(encoded);
  if (!spec.ok()) return spec.status();
  return FromProto(spec->id());
}

namespace {

absl::Status ReadPromptOf(const v1::RequestSpec& spec, std::optional<scheduler::RequestId>* out) {
  if (!spec.has_prompt_of() || SentTokens(spec) > 0) return absl::OkStatus();
  const absl::StatusOr<scheduler::RequestId> id = FromProto(spec.prompt_of());
  if (!id.ok()) return Invalid("prompt_of", std::string(id.status().message()));
  *out = *id;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<scheduler::HeadPtr> HeadFrom(const std::string& encoded) {
  const absl::StatusOr<v1::RequestSpec> spec = Parsed(encoded);
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<scheduler::RequestId> id = FromProto(spec->id());
  if (!id.ok()) return id.status();
  if (absl::Status status = CheckHead(*spec); !status.ok()) return status;
  auto head = std::make_shared<scheduler::RequestHead>();
  head->id = *id;
  head->model = spec->model();
  const int64_t sent = SentTokens(*spec);
  head->prompt_tokens = static_cast<int64_t>(spec->prompt().size() / sizeof(int32_t)) + sent;
  head->max_tokens = spec->max_tokens() - sent;
  head->want_prompt_logprobs = spec->want_prompt_logprobs() && sent == 0;
  head->priority = spec->priority();
  head->deadline_us = static_cast<int64_t>(spec->deadline_us());
  head->names.assign(spec->names().begin(), spec->names().end());
  if (absl::Status status = ReadPromptOf(*spec, &head->prompt_of); !status.ok()) return status;
  ReadOrigin(*spec, head.get());
  head->encoded = std::make_shared<const std::string>(encoded);
  return head;
}

absl::StatusOr<scheduler::SpecPtr> SpecFrom(const std::string& encoded) {
  const absl::StatusOr<v1::RequestSpec> parsed = Parsed(encoded);
  if (!parsed.ok()) return parsed.status();
  const v1::RequestSpec& spec = *parsed;
  const absl::StatusOr<scheduler::RequestId> id = FromProto(spec.id());
  if (!id.ok()) return id.status();
  if (absl::Status status = CheckHead(spec); !status.ok()) return status;
  auto out = std::make_shared<scheduler::RequestSpec>();
  out->id = *id;
  out->model = spec.model();
  out->prompt = UnpackTokens(spec.prompt());
  const std::vector<int32_t> sent = UnpackTokens(spec.sent());
  out->prompt.insert(out->prompt.end(), sent.begin(), sent.end());
  out->sent_tokens = SentTokens(spec);
  out->max_tokens = spec.max_tokens() - out->sent_tokens;
  out->min_tokens = std::max<int64_t>(0, spec.min_tokens() - out->sent_tokens);
  out->sampling = spec.sampling();
  out->stop_token_ids.assign(spec.stop_token_ids().begin(), spec.stop_token_ids().end());
  out->want_prompt_logprobs = spec.want_prompt_logprobs() && out->sent_tokens == 0;
  out->priority = spec.priority();
  out->deadline_us = static_cast<int64_t>(spec.deadline_us());
  out->names.assign(spec.names().begin(), spec.names().end());
  if (absl::Status status = ReadPromptOf(spec, &out->prompt_of); !status.ok()) return status;
  ReadOrigin(spec, out.get());
  return out;
}

v1::FinishReason ToProto(scheduler::FinishReason reason) {
  switch (reason) {
    case scheduler::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case scheduler::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case scheduler::FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
    case scheduler::FinishReason::kError:
      break;
  }
  return v1::FINISH_REASON_ERROR;
}

scheduler::FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return scheduler::FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return scheduler::FinishReason::kLength;
    case v1::FINISH_REASON_CANCELLED:
      return scheduler::FinishReason::kCancelled;
    default:
      return scheduler::FinishReason::kError;
  }
}

}  // namespace skein::services
