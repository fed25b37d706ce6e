#include "services/worker/worker_rpc.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/log.h"
#include "services/base/loop.h"
#include "services/base/rpc.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

constexpr int64_t kAskTimeoutUs = 1'000'000;
// The orchestrator's clock of leases stands still while it does not listen: one lease may seem
// longer here than there.
constexpr int64_t kRefusedLeases = 2;
constexpr auto kAskTimeout = std::chrono::microseconds(kAskTimeoutUs);

}  // namespace

void OrchestratorLink::CountRefusal(const absl::Status& status) {
  const int64_t now_us = MonotonicUs();
  int64_t refused_us = 0;
  {
    std::lock_guard lock(mutex_);
    if (!absl::IsFailedPrecondition(status)) {
      refused_since_us_.reset();
      return;
    }
    if (!refused_since_us_.has_value()) refused_since_us_ = now_us;
    refused_us = now_us - *refused_since_us_;
  }
  if (refused_us == 0 || !refused_) return;
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::ListModels, calls_, v1::ListModelsRequest(),
      kAskTimeoutUs,
      [this, status, refused_us](const absl::Status& asked, const v1::ListModelsResponse& models) {
        if (!asked.ok()) return;
        const auto lease_us = LeaseFrom("instance_lease_us", models.instance_lease_us());
        if (lease_us.ok() && refused_us > kRefusedLeases * *lease_us) refused_(status);
      });
}

void OrchestratorLink::Open(const scheduler::CallRegister& call, bool invariants_ok) {
  Close();
  const uint64_t number = ++streams_;
  counters_ = MessageCounters();
  welcome_ = false;
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  stream_ = Stream::Open(
      "orchestrator", calls_, [this](std::function<void()> hook) { loop_->PostFirst(hook); },
      {.message = [this, number](const v1::OrchestratorMessage& m) { Take(number, m); },
       .ended = [this, number](const absl::Status& status) { Ended(number, status); }},
      [stub](auto* context, auto* reactor) { stub->async()->ConnectWorker(context, reactor); });
  v1::WorkerMessage message;
  *message.mutable_hello() = ToProto(call.request);
  message.mutable_hello()->mutable_load()->set_invariants_ok(invariants_ok);
  Send(std::move(message));
}

void OrchestratorLink::Close() {
  ++streams_;
  if (stream_ != nullptr) stream_->Close();
  stream_.reset();
}

void OrchestratorLink::Send(v1::WorkerMessage message) {
  if (stream_ == nullptr) return;
  if (counters_.unacknowledged() >= MessageCounters::kUnacknowledgedMax) {
    return Drop(absl::ResourceExhaustedError("the orchestrator does not acknowledge messages"));
  }
  counters_.Stamp(&message);
  stream_->Write(std::move(message));
}

void OrchestratorLink::Report(const scheduler::CallReport& call, bool invariants_ok) {
  last_serial_ = call.request.serial;
  v1::WorkerMessage message;
  *message.mutable_report() = ToProto(call.request);
  message.mutable_report()->mutable_load()->set_invariants_ok(invariants_ok);
  Send(std::move(message));
}

void OrchestratorLink::Unregister(const scheduler::CallUnregister& call) {
  v1::WorkerMessage message;
  *message.mutable_goodbye() = ToProto(call.request);
  Send(std::move(message));
}

void OrchestratorLink::Drop(const absl::Status& status) {
  LogWarning("the stream to the orchestrator is closed",
             {{"reason", std::string(status.message())}});
  Close();
  loop_->PostFirst([this, number = streams_, status] {
    if (number == streams_) events_.disconnected({status});
  });
}

// A second stream of this process took the place of this one only if this one was given up here,
// too; then nobody listens any more.
void OrchestratorLink::Ended(uint64_t stream, const absl::Status& status) {
  if (stream != streams_) return;
  stream_.reset();
  ++streams_;
  const absl::Status why =
      status.ok() ? absl::UnavailableError("the orchestrator ended the stream") : status;
  LogWarning(welcome_ ? "the stream to the orchestrator ended" : "registration failed",
             {{"reason", std::string(why.message())}});
  if (!welcome_) CountRefusal(why);
  const bool refused = !welcome_ && absl::IsFailedPrecondition(why);
  if (refused) return events_.registered({{.status = why}});
  events_.disconnected({why});
}

void OrchestratorLink::Take(uint64_t stream, const v1::OrchestratorMessage& message) {
  if (stream != streams_) return;
  absl::Status status = counters_.Take(message);
  if (status.ok()) status = Take(message);
  if (!status.ok() && stream == streams_) Drop(MalformedAnswer("orchestrator", status));
}

absl::Status OrchestratorLink::Take(const v1::OrchestratorMessage& message) {
  if (message.has_welcome() == welcome_) {
    return absl::InvalidArgumentError("welcome: is not the first message, or not there");
  }
  switch (message.message_case()) {
    case v1::OrchestratorMessage::kWelcome: {
      auto reply = FromProto(message.welcome());
      if (!reply.ok()) return reply.status();
      const uint64_t generation = reply->generation.number;
      if (scheduler::GenerationOf(counters_.session()) != generation) {
        return absl::InvalidArgumentError(
            absl::StrCat("session: ", counters_.session(), " is not of generation ", generation));
      }
      welcome_ = true;
      LogInfo("registered", {{"instance", reply->instance.value}, {"generation", generation}});
      {
        std::lock_guard lock(mutex_);
        instance_ = reply->instance;
        refused_since_us_.reset();
      }
      events_.registered({*std::move(reply)});
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kReportTaken: {
      auto reply = FromProto(message.report_taken());
      if (!reply.ok()) return reply.status();
      Tell();
      events_.reported({last_serial_, *std::move(reply)});  // one is unanswered at a time
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kDrainOrder: {
      const auto order = FromProto(message.drain_order());
      if (!order.ok()) return order.status();
      // It is older than an order to this worker that the orchestrator does not know yet. One that
      // it knows it has sent back, behind all older ones.
      if (!HasUntoldOrder()) events_.ordered({.drain = order->drain});
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kGoodbyeTaken:
      events_.unregistered({});
      return absl::OkStatus();
    case v1::OrchestratorMessage::kCancel: {
      auto cancel = FromProto(message.cancel());
      if (!cancel.ok()) return cancel.status();
      events_.cancelled({*std::move(cancel)});
      return absl::OkStatus();
    }
    default:
      return events_.other(message);
  }
}

absl::Status OrchestratorLink::MayDrain() {
  v1::DrainRequest request;
  {
    std::lock_guard lock(mutex_);
    request.set_instance(instance_.value);
  }
  if (request.instance() == 0) return absl::OkStatus();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAskTimeout);
  v1::DrainResponse response;
  const grpc::Status asked =
      v1::Orchestrator::NewStub(channel_)->Drain(&context, request, &response);
  if (asked.error_code() != grpc::StatusCode::FAILED_PRECONDITION) return absl::OkStatus();
  return absl::FailedPreconditionError(asked.error_message());
}

void OrchestratorLink::OrderDrain(bool drain) {
  {
    std::lock_guard lock(mutex_);
    order_ = drain;
    ++orders_;
  }
  Tell();
}

void OrchestratorLink::Tell() {
  v1::DrainRequest request;
  uint64_t order = 0;
  {
    std::lock_guard lock(mutex_);
    if (!order_.has_value() || telling_ || instance_.value == 0) return;
    telling_ = true;
    order = orders_;
    request.set_instance(instance_.value);
    request.set_undo(!*order_);
    request.set_force(true);
  }
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Drain, calls_, std::move(request),
      kAskTimeoutUs,
      [this, order](const absl::Status& status, const v1::DrainResponse&) { Told(status, order); });
}

// Otherwise the next report that is answered tries again.
void OrchestratorLink::Told(const absl::Status& status, uint64_t order) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    telling_ = false;
    if (status.ok() && order == orders_) order_.reset();
    again = status.ok() && order_.has_value();
  }
  if (again) Tell();
}

bool OrchestratorLink::HasUntoldOrder() {
  std::lock_guard lock(mutex_);
  return order_.has_value();
}

}  // namespace skein::services
