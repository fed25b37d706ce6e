#include "services/worker/worker_link.h"

#include <string>
#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/log/log.h"
#include "services/orchestrator_link/own_build.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

constexpr int64_t kAskTimeoutUs = 1'000'000;
// The orchestrator's lease clock stops while it does not listen, so one of its leases may last
// longer on this worker's clock.
constexpr int64_t kRefusedLeases = 2;

void AddTo(const ShellLoad& load, v1::Load* out) {
  out->set_invariants_ok(load.invariants_ok);
  out->set_groups_made(load.groups_made);
  out->set_groups_failed(load.groups_failed);
}

}  // namespace

WorkerLink::WorkerLink(CallTracker* calls, Loop* loop, Channels* channels, const std::string& cell)
    : calls_(calls),
      channels_(channels),
      orchestrators_(cell),
      stream_(calls, loop),
      drain_orders_(calls, [this] { return Leader(); }) {
  stream_.Start({.message = [this](const auto& message) { return Take(message); },
                 .ended = [this](const auto& why, bool welcomed) { Ended(why, welcomed); },
                 .broken = [this](const auto& why) { events_.disconnected({why}); }});
}

void WorkerLink::CountRefusal(const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status)) {
    refused_since_us_.reset();
    return;
  }
  const int64_t now_us = MonotonicUs();
  if (!refused_since_us_.has_value()) refused_since_us_ = now_us;
  const int64_t refused_us = now_us - *refused_since_us_;
  if (refused_us == 0 || !refused_) return;
  CallUnary<v1::Orchestrator>(
      "orchestrator", Leader(), &OrchestratorMethods::ListModels, calls_, v1::ListModelsRequest(),
      kAskTimeoutUs,
      [this, status, refused_us](const absl::Status& asked, const v1::ListModelsResponse& models) {
        if (!asked.ok()) return;
        const auto lease_us = LeaseFrom("instance_lease_us", models.instance_lease_us());
        if (lease_us.ok() && refused_us > kRefusedLeases * *lease_us) refused_(status);
      });
}

void WorkerLink::Open(const scheduler::CallRegister& call, const ShellLoad& load) {
  *hello_.mutable_hello() = ToProto(call.request);
  AddTo(load, hello_.mutable_hello()->mutable_load());
  orchestrators_.BeginRound();
  OpenStream();
}

void WorkerLink::OpenStream() {
  asked_ = orchestrators_.Current();
  std::shared_ptr<v1::Orchestrator::Stub> stub =
      v1::Orchestrator::NewStub(channels_->Get(asked_, {tls::Role::kOrchestrator}));
  stream_.Open(hello_, [stub](auto* context, auto* reactor) {
    stub->async()->ConnectWorker(context, reactor);
  });
}

void WorkerLink::CloseSilent() {
  Close();
  orchestrators_.Failed(asked_, CellOrchestrators::Failure::kSilent, "", MonotonicUs());
}

void WorkerLink::Report(const scheduler::CallReport& call, const ShellLoad& load) {
  last_serial_ = call.request.serial;
  v1::WorkerMessage message;
  *message.mutable_report() = ToProto(call.request);
  AddTo(load, message.mutable_report()->mutable_load());
  Send(std::move(message));
}

void WorkerLink::Unregister(const scheduler::CallUnregister& call) {
  v1::WorkerMessage message;
  *message.mutable_goodbye() = ToProto(call.request);
  Send(std::move(message));
}

// `registered` with an error tells the core that the registration was refused. If the orchestrator
// closes a stream because a newer one replaced it, this side has closed it too, so it ends unheard.
void WorkerLink::Ended(const absl::Status& why, bool welcomed) {
  if (welcomed || OrchestratorIsGone(why)) channels_->Forget(asked_);
  const bool another = orchestrators_.Failed(asked_, why, MonotonicUs(), welcomed);
  if (another && !welcomed) return OpenStream();
  if (welcomed || unregistered_.Admit(std::string(why.message()), MonotonicUs())) {
    LogWarning(welcomed ? "the stream to the orchestrator ended" : "registration failed",
               {{"reason", std::string(why.message())}});
  }
  if (!welcomed) CountRefusal(why);
  const bool refused = !welcomed && absl::IsFailedPrecondition(why);
  if (refused) return events_.registered({{.status = why}});
  events_.disconnected({why});
}

absl::Status WorkerLink::TakeWelcome(const v1::RegisterResponse& message) {
  auto reply = FromProto(message);
  if (!reply.ok()) return reply.status();
  if (const absl::Status fits = CheckOrchestrator(reply->build, "worker"); !fits.ok()) {
    stream_.Close();
    Ended(fits, /*welcomed=*/false);
    return absl::OkStatus();
  }
  LogInfo("registered", {{"instance", reply->instance.value},
                         {"generation", reply->generation.number},
                         {"orchestrator", asked_},
                         {"orchestrator_version", reply->build.version}});
  hello_.Clear();
  refused_since_us_.reset();
  unregistered_.Clear();
  v1::DrainRequest self;
  self.set_instance(reply->instance.value);
  drain_orders_.Know(self);
  for (const std::string& peer : reply->peers) events_.peer(peer);
  events_.registered({*std::move(reply)});
  return absl::OkStatus();
}

absl::Status WorkerLink::Take(const v1::OrchestratorMessage& message) {
  switch (message.message_case()) {
    case v1::OrchestratorMessage::kWelcome:
      return TakeWelcome(message.welcome());
    case v1::OrchestratorMessage::kReportTaken: {
      auto reply = FromProto(message.report_taken());
      if (!reply.ok()) return reply.status();
      drain_orders_.Tell();
      if (events_.keep_trace) {
        for (const std::string& trace : message.report_taken().keep_traces()) {
          events_.keep_trace(trace);
        }
      }
      events_.reported({last_serial_, *std::move(reply)});  // one is unanswered at a time
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kDrainOrder: {
      const auto order = FromProto(message.drain_order());
      if (!order.ok()) return order.status();
      if (!drain_orders_.Contradicts(order->drain)) events_.ordered({.drain = order->drain});
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kPeer: {
      const auto peer = FromProto(message.peer());
      if (!peer.ok()) return peer.status();
      events_.peer(peer->comm_address);
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

}  // namespace skein::services
