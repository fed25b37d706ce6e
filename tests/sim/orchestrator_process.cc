#include "tests/sim/orchestrator_process.h"

#include <utility>

#include "tests/sim/worker_process.h"

namespace skein::sim {

using namespace scheduler;  // NOLINT: the messages, all of them

void OrchestratorProcess::OnStart() {
  const Scenario& scenario = network_->scenario();
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  OrchestratorConfig config;
  config.first_epoch = 1'000'000 * generation();
  config.instance_lease_us = scenario.instance_lease_ms * unit_us;
  config.rpc_timeout_us = 100 * unit_us;
  config.begin_wait_us = 400 * unit_us;
  config.request_deadline_us = 20'000 * unit_us;
  config.planning = scenario.planning;
  config.retry_us = 5 * kMillisecondUs;
  Run(std::make_unique<OrchestratorCore>(config));
}

void OrchestratorProcess::OnCrash() {
  submits_.clear();
  registers_.clear();
  reports_.clear();
  unregisters_.clear();
  begins_.clear();
}

bool OrchestratorProcess::Quiet() const {
  const OrchestratorSnapshot snapshot = core()->Snapshot(LocalNow());
  return submits_.empty() && begins_.size() == 0 &&
         snapshot.planning + snapshot.assigning + snapshot.assigned + snapshot.waiting +
                 snapshot.reserving + snapshot.placed ==
             0;
}

void OrchestratorProcess::Submit(SpecPtr spec, std::shared_ptr<Stream> stream,
                                 std::function<void(PlanUpdate)> deliver) {
  const CallId call = NextCall();
  submits_[call] = {stream, std::move(deliver)};
  stream->Accept(this, [this, call] {
    submits_.erase(call);
    Dispatch(SubmitClosed{call});
  });
  Dispatch(SubmitCalled{call, std::move(spec)});
}

void OrchestratorProcess::Serve(const RegisterRequest& request,
                                std::function<void(RegisterReply)> reply) {
  Dispatch(RegisterCalled{registers_.Add(NextCall(), std::move(reply)), request});
}
void OrchestratorProcess::Serve(const ReportRequest& request,
                                std::function<void(ReportReply)> reply) {
  verdict_->Require(
      request.load.free_blocks + request.load.held_blocks + request.load.cached_blocks ==
          request.load.total_blocks,
      "a report's blocks do not add up");
  verdict_->Require(request.load.invariants_ok, "a worker reports a violated invariant");
  CheckDepartures(request);
  Dispatch(ReportCalled{reports_.Add(NextCall(), std::move(reply)), request});
}

// Without faults a client that went away has left every worker within 100 ms (and a report's
// delay), after the step that it may be in.
void OrchestratorProcess::CheckDepartures(const ReportRequest& report) const {
  if (!network_->scenario().faultless) return;
  for (const HeldRequest& held : report.held) {
    const auto gone = departures_->find(held.id);
    if (gone == departures_->end()) continue;
    const TimeUs most_us = 100 * kMillisecondUs + 2 * network_->scenario().step_us;
    verdict_->Require(network_->time().now() - gone->second < most_us,
                      "a client went away and its blocks did not");
  }
}
void OrchestratorProcess::Serve(const UnregisterRequest& request,
                                std::function<void(UnregisterReply)> reply) {
  Dispatch(UnregisterCalled{unregisters_.Add(NextCall(), std::move(reply)), request});
}
void OrchestratorProcess::Serve(const BeginPrefillRequest& request,
                                std::function<void(BeginPrefillReply)> reply) {
  Dispatch(BeginPrefillCalled{begins_.Add(NextCall(), std::move(reply)), request});
}

void OrchestratorProcess::Drain(const DrainRequest& request) {
  Dispatch(DrainCalled{NextCall(), request});
}

void OrchestratorProcess::Execute(AnswerDrain& effect) {
  const absl::Status& status = effect.reply.status;
  drains_ordered_ += status.ok() ? 1 : 0;
  verdict_->Require(status.ok() || status.code() == absl::StatusCode::kFailedPrecondition,
                    "an order to drain failed");
}

void OrchestratorProcess::Execute(SendPlanUpdate& effect) {
  const auto it = submits_.find(effect.call);
  if (it == submits_.end()) return;
  it->second.stream->Send([deliver = it->second.deliver,
                           update = network_->Encoded(effect.update)] { deliver(update); });
}

void OrchestratorProcess::Execute(EndSubmit& effect) {
  const auto it = submits_.find(effect.call);
  if (it == submits_.end()) return;
  it->second.stream->End();
  submits_.erase(it);
}

void OrchestratorProcess::Execute(AnswerBeginPrefill& effect) {
  begins_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void OrchestratorProcess::Execute(AnswerRegister& effect) {
  registers_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void OrchestratorProcess::Execute(AnswerReport& effect) {
  reports_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void OrchestratorProcess::Execute(AnswerUnregister& effect) {
  unregisters_.Answer(effect.call, std::move(effect.reply), verdict_);
}

void OrchestratorProcess::Execute(CallAssign& effect) {
  const bool spans = !effect.request.members.empty();  // then each member has the same epoch
  verdict_->Require(
      effect.request.epoch > last_epoch_ || (spans && effect.request.epoch == last_epoch_),
      "an epoch did not grow");
  last_epoch_ = effect.request.epoch;
  if (effect.request.members.size() > 1) spanning_.insert(effect.request.epoch);
  network_->Call<AssignReply>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request)](Process* callee,
                                                    std::function<void(AssignReply)> reply) {
        static_cast<PrefillProcess*>(callee)->Serve(request, std::move(reply));
      },
      [this, effect](AssignReply reply) {
        Dispatch(AssignReplied{effect.instance, effect.request.spec->id, effect.request.epoch,
                               std::move(reply), effect.request.sequence});
      });
}

void OrchestratorProcess::Execute(CallStart& effect) {
  network_->Call<StartReply>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request)](Process* callee,
                                                    std::function<void(StartReply)> reply) {
        static_cast<PrefillProcess*>(callee)->Serve(request, std::move(reply));
      },
      [this, effect](StartReply reply) {
        Dispatch(StartReplied{effect.instance, effect.request.id, effect.request.epoch,
                              std::move(reply)});
      });
}

void OrchestratorProcess::Execute(CallReserve& effect) {
  network_->Call<ReserveReply>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request)](Process* callee,
                                                    std::function<void(ReserveReply)> reply) {
        static_cast<DecodeProcess*>(callee)->Serve(request, std::move(reply));
      },
      [this, effect](ReserveReply reply) {
        Dispatch(ReserveReplied{effect.instance, effect.request.spec->id, effect.request.epoch,
                                std::move(reply)});
      });
}

void OrchestratorProcess::Execute(CallCancel& effect) {
  network_->Call<Done>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request)](Process* callee,
                                                    std::function<void(Done)> reply) {
        if (auto* prefill = dynamic_cast<PrefillProcess*>(callee)) prefill->Serve(request);
        if (auto* decode = dynamic_cast<DecodeProcess*>(callee)) decode->Serve(request);
        reply({});
      },
      [this, effect](Done done) {
        Dispatch(CancelReplied{effect.instance, effect.request.id, effect.request.epoch,
                               std::move(done.status)});
      },
      /*may_be_refused=*/false);
}

}  // namespace skein::sim
