#include "services/router/router_link.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/log.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

constexpr int64_t kAskTimeoutUs = 1'000'000;

}  // namespace

RouterLink::RouterLink(uint64_t router, CallTracker* calls, Loop* loop,
                       std::shared_ptr<grpc::Channel> orchestrator, Handle handle)
    : router_(router),
      calls_(calls),
      loop_(loop),
      channel_(std::move(orchestrator)),
      handle_(std::move(handle)),
      started_us_(MonotonicUs()) {}

void RouterLink::Join(Self self) {
  self_ = std::move(self);
  self_.identity.set_router(router_);
  v1::RouterIdentity details = self_.identity;
  handle_(scheduler::Join{{.router = router_,
                           .endpoint = self_.identity.endpoint(),
                           .host = self_.identity.host(),
                           .details = details.SerializeAsString()}});
}

void RouterLink::FillIn(scheduler::RouterLoad* load) const {
  load->draining = self_.draining();
  load->uptime_us = MonotonicUs() - started_us_;
}

void RouterLink::Open(scheduler::RouterHello hello) {
  Close();
  const uint64_t number = ++streams_;
  counters_ = MessageCounters();
  welcome_ = false;
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  stream_ = Stream::Open(
      "orchestrator", calls_, [this](std::function<void()> hook) { loop_->PostFirst(hook); },
      {.message = [this, number](const auto& message) { Take(number, message); },
       .ended = [this, number](const absl::Status& status) { Ended(number, status); }},
      [stub](auto* context, auto* reactor) { stub->async()->ConnectRouter(context, reactor); });
  FillIn(&hello.load);
  v1::RouterMessage message;
  *message.mutable_hello() = ToProto(hello);
  Send(std::move(message));
}

void RouterLink::Close() {
  ++streams_;
  if (stream_ != nullptr) stream_->Close();
  stream_.reset();
}

void RouterLink::Leave() {
  Close();
  self_ = {};
}

void RouterLink::Send(v1::RouterMessage message) {
  if (stream_ == nullptr) return;
  if (counters_.unacknowledged() >= MessageCounters::kUnacknowledgedMax) {
    return Drop(absl::ResourceExhaustedError("the orchestrator does not acknowledge messages"));
  }
  counters_.Stamp(&message);
  stream_->Write(std::move(message));
}

void RouterLink::Report(scheduler::RouterLoad load) {
  FillIn(&load);
  v1::RouterMessage message;
  *message.mutable_report() = ToProto(load);
  Send(std::move(message));
}

// The core does not know yet.
void RouterLink::Drop(const absl::Status& status) {
  LogWarning("the stream to the orchestrator is closed",
             {{"reason", std::string(status.message())}});
  Close();
  loop_->PostFirst([this, number = streams_, status] {
    if (number == streams_) handle_(scheduler::LinkBroken{status});
  });
}

void RouterLink::Ended(uint64_t stream, const absl::Status& status) {
  if (stream != streams_) return;
  stream_.reset();
  ++streams_;
  const absl::Status why =
      status.ok() ? absl::UnavailableError("the orchestrator ended the stream") : status;
  LogWarning(welcome_ ? "the stream to the orchestrator ended" : "the orchestrator was not reached",
             {{"reason", std::string(why.message())}});
  handle_(scheduler::LinkBroken{why});
}

void RouterLink::Take(uint64_t stream, const v1::OrchestratorRouterMessage& message) {
  if (stream != streams_) return;
  absl::Status status = counters_.Take(message);
  if (status.ok()) status = Take(message);
  if (!status.ok() && stream == streams_) Drop(MalformedAnswer("orchestrator", status));
}

absl::Status RouterLink::Take(const v1::OrchestratorRouterMessage& message) {
  if (message.has_welcome() == welcome_) {
    return absl::InvalidArgumentError("welcome: is not the first message, or not there");
  }
  switch (message.message_case()) {
    case v1::OrchestratorRouterMessage::kWelcome:
      return TakeWelcome(message.welcome());
    case v1::OrchestratorRouterMessage::kUpdate: {
      const auto id = FromProto(message.update().id());
      if (!id.ok()) return id.status();
      auto update = FromProto(message.update().update());
      if (!update.ok()) return update.status();
      handle_(scheduler::PlanUpdateReceived{*id, *std::move(update)});
      return absl::OkStatus();
    }
    case v1::OrchestratorRouterMessage::kDrain:
      Obey(message.drain().drain());
      return absl::OkStatus();
    case v1::OrchestratorRouterMessage::kReportTaken:
      handle_(scheduler::RouterReportTaken{});
      Tell();
      return absl::OkStatus();
    case v1::OrchestratorRouterMessage::kGoodbyeTaken:
      handle_(scheduler::RouterGoodbyeTaken{});
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("message: is missing");
  }
}

absl::Status RouterLink::TakeWelcome(const v1::RouterWelcome& message) {
  auto welcome = FromProto(message);
  if (!welcome.ok()) return welcome.status();
  if (scheduler::GenerationOf(counters_.session()) != welcome->generation.number) {
    return absl::InvalidArgumentError(absl::StrCat(
        "session: ", counters_.session(), " is not of generation ", welcome->generation.number));
  }
  welcome_ = true;
  LogInfo("connected to the orchestrator", {{"generation", welcome->generation.number}});
  handle_(scheduler::Welcomed{*std::move(welcome)});
  return absl::OkStatus();
}

// The order that is being told may come back before the answer to it; an older one that contradicts
// it is ignored.
void RouterLink::Obey(bool drain) {
  {
    std::lock_guard lock(mutex_);
    if (order_.has_value() && *order_ != drain) return;
  }
  self_.drain(drain);
}

absl::Status RouterLink::MayDrain() {
  v1::DrainRequest request;
  request.set_router(router_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(kAskTimeoutUs));
  v1::DrainResponse response;
  const grpc::Status asked =
      v1::Orchestrator::NewStub(channel_)->Drain(&context, request, &response);
  if (asked.error_code() != grpc::StatusCode::FAILED_PRECONDITION) return absl::OkStatus();
  return absl::FailedPreconditionError(asked.error_message());
}

void RouterLink::OrderDrain(bool drain) {
  {
    std::lock_guard lock(mutex_);
    order_ = drain;
    ++orders_;
  }
  Tell();
}

void RouterLink::Tell() {
  v1::DrainRequest request;
  uint64_t order = 0;
  {
    std::lock_guard lock(mutex_);
    if (!order_.has_value() || telling_) return;
    telling_ = true;
    order = orders_;
    request.set_router(router_);
    request.set_undo(!*order_);
    request.set_force(true);
  }
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Drain, calls_, std::move(request),
      kAskTimeoutUs,
      [this, order](const absl::Status& status, const v1::DrainResponse&) { Told(status, order); });
}

// Otherwise the next report that is answered tries again.
void RouterLink::Told(const absl::Status& status, uint64_t order) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    telling_ = false;
    if (status.ok() && order == orders_) order_.reset();
    again = status.ok() && order_.has_value();
  }
  if (again) Tell();
}

}  // namespace skein::services
