// The orchestrator of the simulation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "tests/sim/core_process.h"

namespace skein::sim {

inline constexpr char kOrchestrator[] = "orch";

class OrchestratorProcess
    : public CoreProcess<OrchestratorProcess, scheduler::OrchestratorCore,
                         scheduler::OrchestratorEvent, scheduler::OrchestratorEffect,
                         scheduler::OrchestratorTick> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"orchestrator",
                                   {"queued", "assigning", "assigned", "waiting", "reserving",
                                    "placed", "replanning", "parked"}};
    return states;
  }

  using CoreProcess::CoreProcess;

  using Departures = std::map<scheduler::RequestId, TimeUs>;
  void WatchDepartures(const Departures* departures) { departures_ = departures; }

  // Served to others. `deliver` runs at the router.
  void Submit(scheduler::SpecPtr spec, std::shared_ptr<Stream> stream,
              std::function<void(scheduler::PlanUpdate)> deliver);
  void Serve(const scheduler::RegisterRequest& request,
             std::function<void(scheduler::RegisterReply)> reply);
  void Serve(const scheduler::ReportRequest& request,
             std::function<void(scheduler::ReportReply)> reply);
  void Serve(const scheduler::UnregisterRequest& request,
             std::function<void(scheduler::UnregisterReply)> reply);
  void Serve(const scheduler::BeginPrefillRequest& request,
             std::function<void(scheduler::BeginPrefillReply)> reply);

  void Drain(const scheduler::DrainRequest& request);

  void Execute(scheduler::SendPlanUpdate& effect);
  void Execute(scheduler::EndSubmit& effect);
  void Execute(scheduler::AnswerBeginPrefill& effect);
  void Execute(scheduler::AnswerRegister& effect);
  void Execute(scheduler::AnswerReport& effect);
  void Execute(scheduler::AnswerUnregister& effect);
  void Execute(scheduler::AnswerRouterReport& effect) {}  // the router of the simulation has none
  void Execute(scheduler::AnswerDrain& effect);
  void Execute(scheduler::CallAssign& effect);
  void Execute(scheduler::CallStart& effect);
  void Execute(scheduler::CallReserve& effect);
  void Execute(scheduler::CallCancel& effect);

  int64_t drains_ordered() const { return drains_ordered_; }  // and not refused
  // Plans on more than one instance, over all its generations.
  int64_t spanning_plans() const { return static_cast<int64_t>(spanning_.size()); }
  bool Quiet() const;  // nothing is unanswered, no stream is open

 protected:
  void OnStart() override;
  void OnCrash() override;

 private:
  struct Submitted {
    std::shared_ptr<Stream> stream;
    std::function<void(scheduler::PlanUpdate)> deliver;
  };

  std::map<scheduler::CallId, Submitted> submits_;
  Unanswered<scheduler::RegisterReply> registers_;
  Unanswered<scheduler::ReportReply> reports_;
  Unanswered<scheduler::UnregisterReply> unregisters_;
  Unanswered<scheduler::BeginPrefillReply> begins_;
  void CheckDepartures(const scheduler::ReportRequest& report) const;

  const Departures* departures_ = nullptr;
  std::set<scheduler::Epoch> spanning_;
  int64_t drains_ordered_ = 0;
  scheduler::Epoch last_epoch_;  // over all its generations
};

}  // namespace skein::sim
