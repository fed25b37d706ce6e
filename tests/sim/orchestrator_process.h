// The orchestrator of the simulation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "tests/sim/core_process.h"

namespace skein::sim {

inline constexpr char kOrchestrator[] = "orch";

// From the orchestrator to a worker, on its stream.
using WorkerMessage =
    std::variant<scheduler::RegisterReply, scheduler::AnswerReport, scheduler::AnswerUnregister,
                 scheduler::AnswerPlaceDecode, scheduler::CallAssign, scheduler::CallStart,
                 scheduler::CallAnnounce, scheduler::CallWithdraw, scheduler::CallCancel,
                 scheduler::CallDrainOrder>;
using WorkerPort = std::function<void(const WorkerMessage&)>;  // runs at the worker

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
  // A worker's stream, and what comes on it.
  void Connect(std::shared_ptr<Duplex> stream, WorkerPort port,
               const scheduler::RegisterRequest& request);
  void Take(const std::shared_ptr<Duplex>& stream, scheduler::OrchestratorEvent message);

  void Drain(const scheduler::DrainRequest& request);

  void Execute(scheduler::SendPlanUpdate& effect);
  void Execute(scheduler::EndSubmit& effect);
  void Execute(scheduler::AnswerPlaceDecode& effect);
  void Execute(scheduler::AnswerRegister& effect);
  void Execute(scheduler::AnswerReport& effect);
  void Execute(scheduler::AnswerUnregister& effect);
  void Execute(scheduler::CloseWorker& effect);
  void Execute(scheduler::AnswerRouterReport& effect) {}  // the router of the simulation has none
  void Execute(scheduler::AnswerDrain& effect);
  void Execute(scheduler::CallAssign& effect);
  void Execute(scheduler::CallStart& effect);
  void Execute(scheduler::CallAnnounce& effect);
  void Execute(scheduler::CallWithdraw& effect);
  void Execute(scheduler::CallCancel& effect);
  void Execute(scheduler::CallDrainOrder& effect);

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

  struct Connected {
    std::shared_ptr<Duplex> stream;
    WorkerPort port;
    std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> held;  // as the worker told
  };

  void SendTo(scheduler::CallId call, WorkerMessage message);
  template <class Order>
  void SendOrder(Order& order) {
    order.request = network_->Encoded(order.request);
    SendTo(streams_.at(order.instance), order);
  }
  void TakeHeld(const scheduler::ReportRequest& report, Connected* worker) const;
  void CheckDepartures(const Connected& worker) const;

  std::map<scheduler::CallId, Submitted> submits_;
  std::map<scheduler::CallId, Connected> workers_;  // by stream
  std::map<const Duplex*, scheduler::CallId> calls_;
  std::map<scheduler::InstanceId, scheduler::CallId> streams_;
  const Departures* departures_ = nullptr;
  std::set<scheduler::Epoch> spanning_;
  int64_t drains_ordered_ = 0;
  scheduler::Epoch last_epoch_;  // over all its generations
};

}  // namespace skein::sim
