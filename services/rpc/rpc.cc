#include "services/rpc/rpc.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"
#include "services/rpc/credentials.h"

namespace skein::services {
namespace {

// A peer that is silent for this long is pinged. If it stays silent for as long again, it counts as
// dead. The same limits apply while the connection is being made. With a much shorter time, a live
// peer on a busy machine could not be reached.
constexpr int kPatienceMs = 5000;

// gRPC answers a message that cannot be parsed with UNIMPLEMENTED (callback services) or INTERNAL,
// without a text. The caller is at fault, so every method answers INVALID_ARGUMENT with a text
// instead.
class UnparsableMessage : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      const bool unparsable = status.error_code() == grpc::StatusCode::INTERNAL ||
                              status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
      if (unparsable && status.error_message().empty()) {
        methods->ModifySendStatus(
            {grpc::StatusCode::INVALID_ARGUMENT, "the message is not of this method's type"});
      }
    }
    methods->Proceed();
  }
};

class UnparsableMessageFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo*) override {
    return new UnparsableMessage();
  }
};

// Writes gRPC's own errors (its default GRPC_VERBOSITY) as ordinary log lines.
void LogOfGrpc(gpr_log_func_args* line) {
  // Whoever reaches the port can cause these in any number.
  if (absl::StrContains(line->message, "Handshake failed")) {
    if (!AdmitRepeated("TLS handshake of gRPC failed")) return;
    const bool plain = absl::StrContains(line->message, "wrong version number") ||
                       absl::StrContains(line->message, "http request");
    return LogWarning("TLS handshake failed",
                      {{"reason", plain ? "one side speaks TLS and the other one does not: give "
                                          "--tls-dir to all processes of the cluster, or to none"
                                        : line->message}});
  }
  LogWarning("gRPC reports an error",
             {{"reason", line->message}, {"source", absl::StrCat(line->file, ":", line->line)}});
}

// gRPC's locks are absl's. Debian builds absl with its search for deadlocks, which takes another
// lock at each of them: they are three times as slow.
void StopSearchForDeadlocks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace

absl::StatusOr<RpcServer> ServeRpc(const std::string& address,
                                   const std::vector<grpc::Service*>& services,
                                   int message_bytes_max, size_t memory_bytes,
                                   const tls::Security& security) {
  static const bool plugins = [] {
    gpr_set_log_function(LogOfGrpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)plugins;
  StopSearchForDeadlocks();
  RpcServer result;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, ServerCredentials(security), &result.port);
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  builder.SetMaxSendMessageSize(kLogprobsMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kConnectionStreamsMax);
  builder.SetResourceQuota(grpc::ResourceQuota("skein").Resize(memory_bytes));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPatienceMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPatienceMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Two processes must not share a port by accident.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<UnparsableMessageFactory>());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (grpc::Service* service : services) builder.RegisterService(service);
  result.server = builder.BuildAndStart();
  if (result.server == nullptr || result.port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address,
                     ": the port is in use, or the address is not one of this machine's"));
  }
  return result;
}

Channels::Channels(std::function<Clock::time_point()> now, tls::Security security)
    : now_(std::move(now)), security_(std::move(security)) {
  StopSearchForDeadlocks();
}

std::shared_ptr<grpc::Channel> Channels::Get(const std::string& endpoint, tls::RoleSet wanted) {
  const Clock::time_point now = now_();
  std::lock_guard lock(mu_);
  DropIdle(now);
  auto& [channel, used, made] = channels_[{endpoint, wanted.bits()}];
  used = now;
  if (channel == nullptr) {
    made = now;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kLogprobsMessageBytesMax);
    arguments.SetMaxSendMessageSize(kLogprobsMessageBytesMax);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    // gRPC uses this as the time limit of a connection attempt, handshake included.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kPatienceMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    // A restarted pod keeps its name and gets a new address.
    arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPatienceMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPatienceMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    channel = MakeChannel(endpoint, wanted, arguments, security_);
  }
  return channel;
}

void Channels::Forget(const std::string& endpoint) {
  const Clock::time_point now = now_();
  std::lock_guard lock(mu_);
  for (auto it = channels_.lower_bound({endpoint, 0});
       it != channels_.end() && it->first.first == endpoint;) {
    if (now < it->second.made + kFresh) {
      ++it;
      continue;
    }
    it->second.used = now;
    forgotten_.push_back(std::move(it->second));
    it = channels_.erase(it);
  }
}

size_t Channels::size() const {
  std::lock_guard lock(mu_);
  return channels_.size();
}

// REQUIRES: mu_ held. Checks all channels, at most twice in kIdle.
void Channels::DropIdle(Clock::time_point now) {
  if (now < next_drop_) return;
  next_drop_ = now + kIdle / 2;
  std::erase_if(channels_, [now](const auto& entry) { return now - entry.second.used >= kIdle; });
  std::erase_if(forgotten_, [now](const Entry& entry) { return now - entry.used >= kIdle; });
}

absl::Status EndOfCall(const grpc::Status& status, std::string_view peer,
                       const grpc::ClientContext& context) {
  const std::string endpoint = context.peer();
  const std::string kind = absl::StrCat("call failed ", std::string(peer), " ", endpoint);
  if (!IsTransportFailure(status)) {
    RepeatedIsOver(kind);
  } else if (AdmitRepeated(kind)) {
    LogWarning("call failed",
               {{"peer", peer}, {"endpoint", endpoint}, {"reason", status.error_message()}});
  }
  return FromGrpc(status, peer);
}

void CallTracker::Add(grpc::ClientContext* context) {
  std::lock_guard lock(mu_);
  cancellable_.insert(context);
  ++callbacks_;
  if (stopping_) context->TryCancel();
}

void CallTracker::Release(grpc::ClientContext* context) {
  std::lock_guard lock(mu_);
  cancellable_.erase(context);
}

void CallTracker::Leave() {
  std::lock_guard lock(mu_);
  if (--callbacks_ == 0) none_left_.notify_all();
}

void CallTracker::CancelAndWait() {
  std::unique_lock lock(mu_);
  stopping_ = true;
  for (grpc::ClientContext* context : cancellable_) context->TryCancel();
  none_left_.wait(lock, [this] { return callbacks_ == 0; });
}

}  // namespace skein::services
