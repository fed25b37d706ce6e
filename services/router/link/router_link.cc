#include "services/router/link/router_link.h"

#include <string>
#include <utility>

#include "services/codec/codec.h"
#include "services/log/log.h"

namespace skein::services {

RouterLink::RouterLink(uint64_t router, CallTracker* calls, Loop* loop,
                       std::shared_ptr<grpc::Channel> orchestrator, Handle handle)
    : router_(router),
      channel_(orchestrator),
      handle_(std::move(handle)),
      started_us_(MonotonicUs()),
      stream_(calls, loop),
      drain_orders_(calls, std::move(orchestrator)) {
  stream_.Start({.message = [this](const auto& message) { return Take(message); },
                 .ended = [this](const auto& why, bool welcomed) { Ended(why, welcomed); },
                 .broken = [this](const auto& why) { handle_(scheduler::LinkBroken{why}); }});
  v1::DrainRequest self;
  self.set_router(router);
  drain_orders_.Know(self);
}

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
  FillIn(&hello.load);
  v1::RouterMessage message;
  *message.mutable_hello() = ToProto(hello);
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  stream_.Open(std::move(message), [stub](auto* context, auto* reactor) {
    stub->async()->ConnectRouter(context, reactor);
  });
}

void RouterLink::Leave() {
  Close();
  self_ = {};
}

void RouterLink::Report(scheduler::RouterLoad load) {
  FillIn(&load);
  v1::RouterMessage message;
  *message.mutable_report() = ToProto(load);
  Send(std::move(message));
}

void RouterLink::Ended(const absl::Status& why, bool welcomed) {
  LogWarning(welcomed ? "the stream to the orchestrator ended" : "the orchestrator was not reached",
             {{"reason", std::string(why.message())}});
  handle_(scheduler::LinkBroken{why});
}

absl::Status RouterLink::Take(const v1::OrchestratorRouterMessage& message) {
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
      if (!drain_orders_.Contradicts(message.drain().drain())) self_.drain(message.drain().drain());
      return absl::OkStatus();
    case v1::OrchestratorRouterMessage::kReportTaken:
      handle_(scheduler::RouterReportTaken{});
      drain_orders_.Tell();
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
  LogInfo("connected to the orchestrator", {{"generation", welcome->generation.number}});
  handle_(scheduler::Welcomed{*std::move(welcome)});
  return absl::OkStatus();
}

}  // namespace skein::services
