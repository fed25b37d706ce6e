// The orchestrator of the simulation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "tests/sim/candidate.h"
#include "tests/sim/core_process.h"

namespace skein::sim {

inline std::string OrchestratorEndpoint(int number) {
  return number == 0 ? "orch" : absl::StrCat("orch", number);
}

// CallAssign and CallAnnounce as their worker gets them.
struct Assigned {
  scheduler::InstanceId instance;
  scheduler::AssignRequest request;
};
struct Announced {
  scheduler::InstanceId instance;
  scheduler::AnnounceRequest request;
};
// From the orchestrator to a worker, on its stream.
using WorkerMessage =
    std::variant<scheduler::RegisterReply, scheduler::AnswerReport, scheduler::AnswerUnregister,
                 scheduler::PlaceDecodeReplied, Assigned, scheduler::CallStart, Announced,
                 scheduler::CallWithdraw, scheduler::CallCancel, scheduler::CallDrainOrder,
                 scheduler::CallPeer, scheduler::CallGroup, scheduler::CallPrepareFormation,
                 scheduler::CallCommitFormation, scheduler::CallEndFormation, scheduler::CallMode>;
using WorkerPort = std::function<void(const WorkerMessage&)>;  // runs at the worker
// To a router, on its stream.
using RouterMessage = std::variant<scheduler::RouterWelcome, scheduler::SendPlanUpdate,
                                   scheduler::AnswerRouterReport, scheduler::OrderRouterDrain>;
using RouterPort = std::function<void(const RouterMessage&)>;  // runs at the router

using Departures = std::map<scheduler::RequestId, TimeUs>;
using EndedSet = std::set<std::pair<scheduler::RequestId, scheduler::Epoch>>;

class OrchestratorProcess;
// What all orchestrators of a world did, over all their generations.
struct CellRecord {
  std::vector<const OrchestratorProcess*> orchestrators;
  std::map<scheduler::Incarnation, EndedSet> ends_heard;  // by worker, those that arrived
  std::set<scheduler::Incarnation> engines_failed;        // workers that reported it
  std::set<scheduler::Epoch> sp_plans;                    // on more than one instance
  scheduler::Epoch last_epoch;
  int64_t drains_ordered = 0;  // and not refused
  int64_t deaths_after_engine_failure = 0;
  int64_t binds = 0, releases = 0;   // that ended as they should
  int64_t switches_failed = 0;       // the others
  int64_t shares = 0, unshares = 0;  // of these, with shared weights
  int64_t modes_changed = 0, modes_kept = 0;
  int64_t leaderships = 0;  // begun, where they elect a leader
};

class OrchestratorProcess
    : public CoreProcess<OrchestratorProcess, scheduler::OrchestratorCore,
                         scheduler::OrchestratorEvent, scheduler::OrchestratorEffect,
                         scheduler::OrchestratorTick> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"orchestrator",
                                   {"queued", "assigning", "assigned", "waiting", "reserving",
                                    "placed", "replanning", "parked", "sharing", "grouping"}};
    return states;
  }

  using CoreProcess::CoreProcess;

  // Of requests: when their clients went away; or, where their router died, by when decode workers
  // have to have freed their blocks.
  void Watch(const Departures* departures, const Departures* abandoned) {
    departures_ = departures;
    abandoned_ = abandoned;
  }
  void NoteIn(CellRecord* record) {
    record_ = record;
    number_ = record->orchestrators.size();
    record->orchestrators.push_back(this);
  }
  // It is one of several: it stands by until it has won. REQUIRES: it has not started.
  void ElectIn(StoreProcess* store);
  // Whether it takes calls: it lives, and leads at this moment.
  bool Serves() const;
  // By its own clock, and alive.
  bool HoldsLease() const { return alive() && candidate_ != nullptr && candidate_->Leads(); }
  bool MayHandle();
  // As at SIGTERM: it gives the leadership up, and ends. REQUIRES: it is one of several.
  void Resign();

  // Called by other processes: a worker or router opens its stream, or a message comes on it.
  // `told`: the ends that the worker reported on earlier streams; its request must repeat those
  // that did not arrive.
  void Connect(std::shared_ptr<Duplex> stream, WorkerPort port,
               const scheduler::RegisterRequest& request, const EndedSet& told);
  void ConnectRouter(std::shared_ptr<Duplex> stream, RouterPort port,
                     const scheduler::RouterHello& hello);
  void Take(const std::shared_ptr<Duplex>& stream, scheduler::OrchestratorEvent message);

  void Drain(const scheduler::DrainRequest& request);
  void Order(const scheduler::orchestrator::FormationOrder& order);
  // Orders about formations that this process has not answered yet.
  size_t open_orders() const { return open_orders_.size(); }
  // Whether all instances of all groups work alone, and no switch is under way.
  bool AllWorkAlone() const;

  void Execute(scheduler::SendPlanUpdate& effect);
  void Execute(scheduler::AnswerPlaceDecode& effect);
  void Execute(scheduler::AnswerRegister& effect);
  void Execute(scheduler::AnswerReport& effect);
  void Execute(scheduler::AnswerUnregister& effect);
  void Execute(scheduler::CloseWorker& effect);
  void Execute(scheduler::DialWorker& effect);
  void Execute(scheduler::WelcomeRouter& effect);
  void Execute(scheduler::AnswerRouterReport& effect);
  void Execute(scheduler::AnswerRouterGoodbye& effect) {}  // the routers of the simulation stay
  void Execute(scheduler::OrderRouterDrain& effect) {
    SendToRouter(effect.call, network_->Encoded(effect));
  }
  void Execute(scheduler::CloseRouter& effect);
  void Execute(scheduler::StoreGeneration& effect);
  void Execute(scheduler::AnswerDrain& effect);
  void Execute(scheduler::CallAssign& effect);
  void Execute(scheduler::CallStart& effect);
  void Execute(scheduler::CallAnnounce& effect);
  void Execute(scheduler::CallWithdraw& effect);
  void Execute(scheduler::CallCancel& effect);
  void Execute(scheduler::CallDrainOrder& effect);
  void Execute(scheduler::CallPeer& effect);
  void Execute(scheduler::CallGroup& effect);
  void Execute(scheduler::CallPrepareFormation& effect);
  void Execute(scheduler::CallCommitFormation& effect);
  void Execute(scheduler::CallEndFormation& effect);
  void Execute(scheduler::CallMode& effect);
  void Execute(scheduler::AnswerFormation& effect);
  void Execute(scheduler::FormationSwitched& effect);
  void Execute(scheduler::HearsNobody& effect) {
    if (candidate_ != nullptr) candidate_->StepAside();
  }
  void Execute(scheduler::SharedModeChanged& effect);
  void Execute(scheduler::TracedEnded& effect) {}
  void Execute(scheduler::PromptTaken& effect) {}  // improvement rates stay as they are

  bool Quiet() const;  // no request is alive

 protected:
  void OnStart() override;
  void OnCrash() override;
  void OnClockJump() override;

 private:
  // As OrchestratorShell and Candidacy.
  void Lead(uint64_t generation);
  void StepDown();
  scheduler::OrchestratorConfig ConfigOf(uint64_t generation) const;
  void Forget();                                      // its peers
  bool Turns(const std::shared_ptr<Duplex>& stream);  // away, with the leader's endpoint
  void DieAfter(const scheduler::PlanUpdate& update);
  scheduler::orchestrator::FormationConfig FormationsOf(const Scenario& scenario) const;

  struct Connected {
    std::shared_ptr<Duplex> stream;
    WorkerPort port;
    std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> held;  // as the worker told
    scheduler::InstanceId instance;  // 0: not welcomed yet, or it has left
    bool left = false;               // what it sent before it heard that is dropped
    bool decode = false;             // its role
  };
  struct ConnectedRouter {
    std::shared_ptr<Duplex> stream;
    RouterPort port;
    uint64_t router = 0;  // 0: not welcomed yet
  };

  // What OrchestratorShell would refuse: a message before the welcome, or one for another process.
  void CheckSender(const Connected& worker, scheduler::OrchestratorEvent* message);
  void CheckSender(const ConnectedRouter& router, const scheduler::OrchestratorEvent& message);
  void Renumber(scheduler::CallId call, const scheduler::Generation& generation, Duplex* stream);
  void CheckRefusal(const absl::Status& status);
  void NoteDecode();
  void TakeReport(const scheduler::ReportRequest& report, Connected* worker);

  void SendTo(scheduler::CallId call, WorkerMessage message);
  void SendToRouter(scheduler::CallId call, RouterMessage message);
  template <class Received, class Order>
  void SendOrder(const Order& order) {
    const auto it = streams_.find(order.instance);
    if (it == streams_.end()) return;  // it has left
    SendTo(it->second, Received{order.instance, network_->Encoded(order.request)});
  }
  void HearEnds(scheduler::Incarnation worker, const std::vector<scheduler::EndedRequest>& ended);
  void TakeHeld(const scheduler::ReportRequest& report, Connected* worker) const;
  void CheckDepartures(const Connected& worker) const;
  void CheckAbandoned(const Connected& worker) const;

  std::map<scheduler::CallId, ConnectedRouter> routers_;  // by stream
  std::map<uint64_t, scheduler::CallId> router_streams_;  // by router, those welcomed
  uint64_t stored_generation_ = 0;                        // outlives a crash
  std::map<scheduler::CallId, Connected> workers_;        // by stream
  std::map<const Duplex*, scheduler::CallId> calls_;
  std::map<scheduler::InstanceId, scheduler::CallId> streams_;
  const Departures* departures_ = nullptr;
  const Departures* abandoned_ = nullptr;
  // Of this generation: the most decode workers at a time; whether one has drained.
  int64_t most_decode_ = 0;
  bool saw_drain_ = false;
  std::set<scheduler::CallId> open_orders_;
  CellRecord* record_ = nullptr;
  uint64_t number_ = 0;  // among the orchestrators
  StoreProcess* store_ = nullptr;
  std::unique_ptr<Candidate> candidate_;  // null: it is the only one
  bool stands_by_ = false;
};

}  // namespace skein::sim
