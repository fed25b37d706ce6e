#include "services/router/link/router_link.h"

#include <string>
#include <utility>

#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/orchestrator_link/own_build.h"

namespace skein::services {
namespace {

constexpr int kKeepTracesInReport = 256;  // as RouterLoad.keep_traces allows
constexpr size_t kKeepTracesMax = 4096;   // that wait for reports, while none is sent

}  // namespace

RouterLink::RouterLink(uint64_t router, CallTracker* calls, Loop* loop, Channels* channels,
                       const Cell& cell, Handle handle)
    : channels_(channels),
      cell_(cell.place),
      orchestrators_(cell.orchestrators),
      handle_(std::move(handle)),
      started_us_(MonotonicUs()),
      stream_(calls, loop),
      drain_orders_(calls, [this] {
        return channels_->Get(orchestrators_.Current(), {tls::Role::kOrchestrator});
      }) {
  stream_.Start({.message = [this](const auto& message) { return Take(message); },
                 .ended = [this](const auto& why, bool welcomed) { Ended(why, welcomed); },
                 .broken =
                     [this](const auto& why) {
                       handle_(scheduler::LinkBroken{why, cell_});
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
  *hello_.mutable_hello() = ToProto(hello);
  orchestrators_.BeginRound();
  OpenStream();
}

void RouterLink::OpenStream() {
  asked_ = orchestrators_.Current();
  std::shared_ptr<v1::Orchestrator::Stub> stub =
      v1::Orchestrator::NewStub(channels_->Get(asked_, {tls::Role::kOrchestrator}));
  stream_.Open(hello_, [stub](auto* context, auto* reactor) {
    stub->async()->ConnectRouter(context, reactor);
  });
}

void RouterLink::CloseSilent() {
  Close();
  orchestrators_.Failed(asked_, CellOrchestrators::Failure::kSilent, "", MonotonicUs());
}

void RouterLink::Leave() {
  Close();
  self_ = {};
}

void RouterLink::Report(scheduler::RouterLoad load) {
  FillIn(&load);
  v1::RouterMessage message;
  v1::RouterLoad& report = *message.mutable_report();
  report = ToProto(load);
  for (; !keep_traces_.empty() && report.keep_traces_size() < kKeepTracesInReport;
       keep_traces_.pop_front()) {
    report.add_keep_traces(std::move(keep_traces_.front()));
  }
  Send(std::move(message));
}

void RouterLink::KeepTrace(const TraceId& trace) {
  keep_traces_.emplace_back(trace.begin(), trace.end());
  if (keep_traces_.size() > kKeepTracesMax) keep_traces_.pop_front();
}

void RouterLink::Ended(const absl::Status& why, bool welcomed) {
  if (welcomed || OrchestratorIsGone(why)) channels_->Forget(asked_);
  const bool another = orchestrators_.Failed(asked_, why, MonotonicUs(), welcomed);
  if (another && !welcomed) return OpenStream();
  if (welcomed || unreached_.Admit(std::string(why.message()), MonotonicUs())) {
    LogWarning(
        welcomed ? "the stream to the orchestrator ended" : "the orchestrator was not reached",
        {{"orchestrator", asked_}, {"reason", std::string(why.message())}});
  }
  handle_(scheduler::LinkBroken{why, cell_});
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
      handle_(scheduler::PlanUpdateReceived{*id, *std::move(update), cell_});
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
      handle_(scheduler::RouterReportTaken{*std::move(report), cell_});
      drain_orders_.Tell();
      return absl::OkStatus();
    }
    case v1::OrchestratorRouterMessage::kGoodbyeTaken:
      handle_(scheduler::RouterGoodbyeTaken{cell_});
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
  hello_.Clear();
  LogInfo("connected to the orchestrator", {{"orchestrator", asked_},
                                            {"generation", welcome->generation.number},
                                            {"orchestrator_version", welcome->build.version}});
  handle_(scheduler::Welcomed{*std::move(welcome), cell_});
  return absl::OkStatus();
}

}  // namespace skein::services
