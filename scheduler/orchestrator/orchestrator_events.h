// What OrchestratorCore is told (events) and what it wants done (effects).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/groups/formation_order.h"
#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"

namespace skein::scheduler {

// ---- events ----

struct SubmitCalled {  // by the router that its id names; idempotent
  HeadPtr spec;
  PrefillShape shape = {};  // in which its prompt is computed, whatever the policy
  bool accepted = false;    // by an orchestrator before: it is not refused for lack of capacity
  FailedEngines failed_engines = {};  // as its router was told
  uint32_t moves = 0;                 // from one cell to another, so far
};
struct RouterEnded {  // for its client; the request is cancelled everywhere
  RouterEnd end;
};
// The messages of a router; `call` is its stream, which RouterConnected begins. The shell lets none
// of a stream through after RouterDisconnected or CloseRouter, and none about another router's
// requests.
struct RouterConnected {
  CallId call;
  RouterHello hello;
};
struct RouterReported {
  CallId call;
  RouterLoad load;
};
struct RouterLeft {
  CallId call;
};
struct RouterDisconnected {  // the stream is over
  CallId call;
};
// The messages of a worker; `call` is its stream, which RegisterCalled begins. The shell lets none
// of a stream through after WorkerDisconnected or CloseWorker.
struct RegisterCalled {
  CallId call;
  RegisterRequest request;
};
struct PlaceDecodeCalled {
  CallId call;
  PlaceDecodeRequest request;
};
struct ReportCalled {
  CallId call;
  ReportRequest request;
};
struct UnregisterCalled {
  CallId call;
  UnregisterRequest request;
};
struct WorkerDisconnected {  // the stream is over
  CallId call;
};
// What the address of this process answered (DialWorker): it accepted a connection, or refused it,
// since no process listens there.
struct WorkerDialled {
  InstanceId instance;
  Incarnation incarnation;
  bool accepted = false;
};
struct DrainCalled {  // an operator's
  CallId call;
  DrainRequest request;
};
struct FormationCalled {  // an operator's
  CallId call;
  orchestrator::FormationOrder order;
};
// How far a decode instance is with a formation, told on its stream.
struct FormationReported {
  InstanceId instance;
  FormationTold told;
};
// How far it is with a change of its mode (OrderMode), likewise.
struct ModeReported {
  InstanceId instance;
  ModeTold told;
};
// So many lines of offline jobs of the model wait to be computed, from now on.
struct OfflineQueued {
  std::string model;
  int64_t lines = 0;
};
// Answers of a worker, on its stream.
struct AssignReplied {
  InstanceId instance;
  RequestId id;
  Epoch epoch;
  AssignReply reply;
  PlanSequence sequence = {};  // of the Assign; ignored for plain plans
};
// Other tables, from the next plan on. Ignored when the latency model does not fit them
// (CheckPlanning).
struct ReplacePlanningTables {
  PlanningTables tables;
  // Only for this model's pool, now or to come; "": for all models, also those that had tables of
  // their own.
  std::string model = {};
};
// All messages that arrived before it are handled. Only this event lets leases expire
// (scheduler/base/listening_clock.h); while instances are registered it comes often.
struct OrchestratorTick {};

using OrchestratorEvent =
    std::variant<SubmitCalled, RouterEnded, PlaceDecodeCalled, RegisterCalled, ReportCalled,
                 UnregisterCalled, WorkerDisconnected, RouterConnected, RouterReported, RouterLeft,
                 RouterDisconnected, DrainCalled, FormationCalled, FormationReported, ModeReported,
                 OfflineQueued, AssignReplied, TransferOpened, ReplacePlanningTables, WorkerDialled,
                 OrchestratorTick>;

// ---- effects ----

// On the stream of the request's router; dropped where there is none.
struct SendPlanUpdate {
  RequestId id;
  PlanUpdate update;
};
// OK: the stream belongs to this router from now on. Otherwise it is closed.
struct WelcomeRouter {
  CallId call;
  uint64_t router = 0;
  RouterWelcome welcome;
};
// Answers to a router, on its stream `call`.
struct AnswerRouterReport {
  CallId call;
  CellReport cell;
};
struct AnswerRouterGoodbye {
  CallId call;
};
struct OrderRouterDrain {
  CallId call;
  bool drain = true;
};
// The stream is not this router's any more: close it.
struct CloseRouter {
  CallId call;
  absl::Status status;
};
// Store it for the next start. If it is lost, peers refuse the next start's number once.
struct StoreGeneration {
  uint64_t generation = 0;
};
// Answers to a worker, on its stream `call`.
struct AnswerPlaceDecode {
  CallId call;
  RequestId id;
  Epoch epoch;
  PlaceDecodeReply reply;
};
// OK: the stream belongs to reply.instance from now on. Otherwise it is closed.
struct AnswerRegister {
  CallId call;
  RegisterReply reply;
};
struct AnswerReport {
  CallId call;
  ReportReply reply;
};
struct AnswerUnregister {
  CallId call;
  UnregisterReply reply;
};
struct AnswerDrain {
  CallId call;
  DrainReply reply;
};
// The order is carried out, or why it is not, or only in part.
struct AnswerFormation {
  CallId call;
  absl::Status status;
  // What came of it, for people; each names a formation, such as "bound(2) of 1, 2 in 3.1 ms".
  std::vector<std::string> done = {};
};
// A submitted prompt is to be computed by prefill instances: it was not refused, does not share
// another one's, is not computed by a decode group, and no other orchestrator accepted it before.
// Only with planning; for the tuning of improvement rates.
struct PromptTaken {
  std::string model;
  int64_t tokens = 0;
};
// A request that is traced (RequestHead::traceparent) has ended; what is known of it at this
// moment.
struct TracedEnded {
  HeadPtr spec;
  TimeUs submitted_us = 0;
  std::shared_ptr<const Explanation> explanation;
};
// A switch of a group has ended; for logs and metrics.
struct FormationSwitched {
  std::string group;  // its name (GroupStatus)
  orchestrator::SwitchEnded ended;
};
// Their streams stand, and none of the workers and routers has said a word for long: what they send
// does not arrive here (hearing.h). Where another orchestrator stands by, let that one lead.
struct HearsNobody {};
// Likewise, a change of the mode of instances that share their weights.
struct SharedModeChanged {
  std::string group;
  orchestrator::ModeChanged changed;
};
// The stream is not this instance's any more: close it.
struct CloseWorker {
  CallId call;
  absl::Status status;
};
// Dial the address of this process: once when it has come, and a few times within two seconds when
// its stream broke. WorkerDialled follows each time, unless no answer or another error comes.
struct DialWorker {
  InstanceId instance;
  Incarnation incarnation;
  std::string endpoint;
  bool broke = false;  // its stream
};
// Messages to an instance, on its stream. Assign is answered by one AssignReplied with the same
// instance, id, epoch and sequence, unless the stream breaks; the others are not answered.
struct CallAssign {
  InstanceId instance;
  AssignOrder request;
};
struct CallStart {
  InstanceId instance;
  StartRequest request;
};
struct CallAnnounce {
  InstanceId instance;
  AnnounceOrder request;
};
struct CallWithdraw {
  InstanceId instance;
  WithdrawRequest request;
};
struct CallCancel {
  InstanceId instance;
  CancelRequest request;
};
struct CallDrainOrder {
  InstanceId instance;
  DrainOrder request;
};
struct CallPeer {
  InstanceId instance;
  PeerOrder request;
};
struct CallGroup {
  InstanceId instance;
  GroupOrder request;
};
struct CallPrepareFormation {
  InstanceId instance;
  PrepareFormation request;
};
struct CallCommitFormation {
  InstanceId instance;
  CommitFormation request;
};
struct CallEndFormation {
  InstanceId instance;
  EndFormation request;
};
struct CallMode {
  InstanceId instance;
  OrderMode request;
};

using OrchestratorEffect =
    std::variant<SendPlanUpdate, WelcomeRouter, AnswerRouterReport, AnswerRouterGoodbye,
                 OrderRouterDrain, CloseRouter, StoreGeneration, AnswerPlaceDecode, AnswerRegister,
                 AnswerReport, AnswerUnregister, CloseWorker, DialWorker, AnswerDrain, CallAssign,
                 CallStart, CallAnnounce, CallWithdraw, CallCancel, CallDrainOrder, CallPeer,
                 CallGroup, CallPrepareFormation, CallCommitFormation, CallEndFormation, CallMode,
                 AnswerFormation, FormationSwitched, SharedModeChanged, PromptTaken, TracedEnded,
                 HearsNobody>;

}  // namespace skein::scheduler
