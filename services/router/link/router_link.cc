#include "services/router/link/router_link.h"

#include <string>
#include <utility>

#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/orchestrator_link/own_build.h"

namespace skein::services {

RouterLink::RouterLink(uint64_t router, CallTracker* calls, Loop* loop, Orchestrator orchestrator,
                       Handle handle)
    : orchestrator_(std::move(orchestrator)),
      handle_(std::move(handle)),
      started_us_(MonotonicUs()),
      stream_(calls, loop),
      drain_orders_(calls, orchestrator_.channel) {
  stream_.Start({.message = [this](const auto& message) { return Take(message); },
                 .ended = [this](const auto& why, bool welcomed) { Ended(why, welcomed); },
                 .broken =
                     [this](const auto& why) {
                       handle_(scheduler::LinkBroken{why, orchestrator_.cell});
                     }});
  v1::DrainRequest self;
  self.set_router(router);
  drain_orders_.Know(self);
}

void RouterLink::FillIn(scheduler::RouterLoad* load) const {
  load->draining = self_.draining();
  load->uptime_us = MonotonicUs() - started_us_;
}

void RouterLink::Open(scheduler::RouterHello hello) {
  FillIn(&hello.load);
  v1::RouterMessage message;
  *message.mutable_hello() = ToProto(hello);
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(orchestrator_.channel);
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
  if (welcomed || unreached_.Admit(std::string(why.message()), MonotonicUs())) {
    LogWarning(
        welcomed ? "the stream to the orchestrator ended" : "the orchestrator was not reached",
        {{"orchestrator", orchestrator_.address}, {"reason", std::string(why.message())}});
  }
  handle_(scheduler::LinkBroken{why, orchestrator_.cell});
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
      handle_(scheduler::PlanUpdateReceived{*id, *std::move(update), orchestrator_.cell});
      return absl::OkStatus();
    }
    case v1::OrchestratorRouterMessage::kDrain: {
      const auto order = FromProto(message.drain());
      if (!order.ok()) return order.status();
      if (!drain_orders_.Contradicts(order->drain)) self_.drain(order->drain);
      return absl::OkStatus();
    }
    case v1::OrchestratorRouterMessage::kReportTaken: {
      auto report = FromProto(message.report_taken().cell());
      if (!report.ok()) return report.status();
      handle_(scheduler::RouterReportTaken{*std::move(report), orchestrator_.cell});
      drain_orders_.Tell();
      return absl::OkStatus();
    }
    case v1::OrchestratorRouterMessage::kGoodbyeTaken:
      handle_(scheduler::RouterGoodbyeTaken{orchestrator_.cell});
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("message: is missing");
  }
}

absl::Status RouterLink::TakeWelcome(const v1::RouterWelcome& message) {
  auto welcome = FromProto(message);
  if (!welcome.ok()) return welcome.status();
  if (const absl::Status fits = CheckOrchestrator(welcome->build, "router"); !fits.ok()) {
    stream_.Close();
    Ended(fits, /*welcomed=*/false);
    return absl::OkStatus();
  }
  unreached_.Clear();
  LogInfo("connected to the orchestrator", {{"orchestrator", orchestrator_.address},
                                            {"generation", welcome->generation.number},
                                            {"orchestrator_version", welcome->build.version}});
  handle_(scheduler::Welcomed{*std::move(welcome), orchestrator_.cell});
  return absl::OkStatus();
}

}  // namespace skein::services
