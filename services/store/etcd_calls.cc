#include "services/store/etcd_calls.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "services/rpc/credentials.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

// etcd closes connections that ping more often than every 5 s (--grpc-keepalive-min-time).
constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // gRPC uses this as the time limit of a connection attempt, too.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  return MakeChannel(endpoint, /*wanted=*/{}, arguments);
}

// Whether the endpoint has answered, if only with an error that another one would give as well.
bool Answered(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseEtcdEndpoints(const std::string& text) {
  std::vector<std::string> endpoints;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    // --tls-dir decides about TLS, for all that a process calls.
    const bool encrypted = absl::ConsumePrefix(&part, "https://");
    const bool plain = !encrypted && absl::ConsumePrefix(&part, "http://");
    const bool tls = tls::ProcessSecurity().certificates != nullptr;
    if ((encrypted && !tls) || (plain && tls)) {
      return absl::InvalidArgumentError(
          absl::StrCat(encrypted ? "https://" : "http://", part,
                       ": the endpoints of etcd use TLS with --tls-dir",
                       tls ? ", which is given" : ", which is not given"));
    }
    const size_t colon = part.rfind(':');
    const bool port = colon != absl::string_view::npos && colon > 0 && colon + 1 < part.size() &&
                      std::all_of(part.begin() + static_cast<std::ptrdiff_t>(colon) + 1, part.end(),
                                  absl::ascii_isdigit);
    if (absl::StrContains(part, "//") || !port) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an endpoint of etcd is HOST:PORT, http://HOST:PORT or https://HOST:PORT, not '", part,
          "'"));
    }
    endpoints.emplace_back(part);
  }
  return endpoints;
}

EtcdCalls::EtcdCalls(std::vector<std::string> endpoints) : endpoints_(std::move(endpoints)) {
  channels_.reserve(endpoints_.size());
  for (const std::string& endpoint : endpoints_) channels_.push_back(Connect(endpoint));
}

absl::Status EtcdCalls::Try(int64_t timeout_us, const Call& call) {
  const auto count = static_cast<int64_t>(endpoints_.size());
  const int64_t share_us = std::max<int64_t>(1000, timeout_us / count);
  absl::Status status;
  for (int64_t i = 0; i < count; ++i) {
    status = CallOne(Current(), share_us, call);
    if (Answered(status)) break;
  }
  return status;
}

absl::Status EtcdCalls::TryOnce(int64_t timeout_us, const Call& call) {
  return CallOne(Current(), timeout_us, call);
}

absl::Status EtcdCalls::CallOne(size_t endpoint, int64_t timeout_us, const Call& call) {
  grpc::ClientContext context;
  Prepare(&context);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(timeout_us));
  absl::Status status = Error(endpoint, call(channels_[endpoint], &context));
  if (!Answered(status)) Failed(endpoint);
  return status;
}

size_t EtcdCalls::Current() const {
  std::lock_guard lock(mu_);
  return current_;
}

void EtcdCalls::Failed(size_t endpoint) {
  std::lock_guard lock(mu_);
  if (current_ == endpoint) current_ = (current_ + 1) % endpoints_.size();
}

void EtcdCalls::Prepare(grpc::ClientContext* context) { context->AddMetadata("hasleader", "true"); }

std::string EtcdCalls::Names() const {
  return absl::StrCat("etcd at ", absl::StrJoin(endpoints_, ","));
}

absl::Status EtcdCalls::Error(size_t endpoint, const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("etcd at ", endpoints_[endpoint], ": ", status.error_message());
  // absl's codes are gRPC's. What etcd says of itself (no leader, no space, too many requests) has
  // one meaning here: it does not serve now.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  absl::Status error(code, text);
  if (Answered(error) || code == absl::StatusCode::kDeadlineExceeded) return error;
  return absl::UnavailableError(text);
}

}  // namespace skein::services
