// The parts of OrchestratorCore. Included by its own files only. RouterSide (router_side.h) carries
// out what routers say, PlanSender (plan_sender.h) writes the messages about plans; the rest is
// here:
//   orchestrator_core.cc   submission, timers, the ends of a request, the generation
//   membership.cc          instances come, report, go
//   planning.cc            which instances compute a prompt, and the wait for one that takes it
//   assigning.cc           a plan goes to its members, and what they say of it
//   replanning.cc          a plan is given up
//   placing.cc             which instance decodes: DecodePlacement's answers are carried out
//   checks.cc              what the core shows of itself
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/decode/decode_placement.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill/abandoned_plans.h"
#include "scheduler/orchestrator/prefill/plan_chooser.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/prefill/rolling_plans.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/parked_requests.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/router_side.h"
#include "scheduler/placement/freeness.h"

namespace skein::scheduler {

class OrchestratorCore::Impl final : private orchestrator::RequestEnds {
 public:
  explicit Impl(const OrchestratorConfig& config);

  std::vector<OrchestratorEffect> Handle(const OrchestratorEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  OrchestratorSnapshot Totals() const;
  OrchestratorSnapshot Snapshot(TimeUs now) const;
  std::string_view StateOf(RequestId id) const;
  std::vector<Explanation> Explain(const std::string& request, TimeUs now) const;
  std::vector<Explanation> List(RequestOrder order, size_t limit, TimeUs now) const;

 private:
  using State = orchestrator::State;
  using Member = orchestrator::Member;
  using Chunk = orchestrator::Chunk;
  using PlannedChunk = orchestrator::PlannedChunk;
  using Request = orchestrator::Request;
  static constexpr size_t kStates = orchestrator::kStates;

  void On(const SubmitCalled& event);
  void On(const PlaceDecodeCalled& event);
  void On(const RegisterCalled& event);
  void On(const ReportCalled& event);
  void On(const UnregisterCalled& event);
  void On(const WorkerDisconnected& event);
  void On(const RouterConnected& event);
  void On(const DrainCalled& event);
  void On(const AssignReplied& event);
  void On(const TransferOpened& event);
  void On(const ReplacePlanningTables& event);
  void On(const OrchestratorTick& event);

  absl::Status MaySubmit(const SubmitCalled& event) const;
  void Submit(const SubmitCalled& event);
  void TellAccepted(const SubmitCalled& event);
  void Note(Degraded kind, Request& request) { explanations_.Note(kind, &request); }
  void Enter(Request& request, State state) { requests_.Enter(request, state); }

  absl::Status HasCapacity(const std::string& model) const;
  void Park(Request& request);
  void PlanParked();
  // An instance of the model may have room for parked requests.
  void NoteRoom(const std::string& model) {
    parked_.NoteRoom(model);
    rolled_.insert(model);
  }
  void TakeFromInstance(Instance& instance, RequestId request);

  Request* Find(RequestId id) { return requests_.Find(id); }
  Request* Find(RequestId id, Epoch epoch) { return requests_.Find(id, epoch); }
  // Of a request that ends: whose reports may still tell that its KV was taken, and how it ended.
  static AwaitedReports AwaitedReportsOf(const Request& request);
  bool plans() const { return pools_.plans(); }

  // Decisions: planning.cc.
  void Plan(Request& request);  // a new plan, or fails or parks it
  void AddPlan(Request& request, PlanExplanation explanation);
  void FailUnplannable(Request& request);
  void NoteStarts(const std::string& model);  // of chunks that nothing is in front of any more
  void NoteUnopened(const Request& request);
  void NoteOpened(const Request& request);  // or given up
  void ForgetPlan(const Request& request);
  absl::Status CheckUnopened() const;

  // Rolling.
  void DecideRolling();
  void DecideRolling(const std::string& model);
  void StartChunk(Request& request, const orchestrator::PrefillPools::Pool& pool,
                  const ChunkPlan& start);
  void Join(Request& request, const PlannedChunk& chunk);
  void LeaveRolling(Request& request);

  // A plan and its members.
  void SendPlan(Request& request, const std::vector<PlannedChunk>& chunks);  // under a new epoch
  void AddChunk(Request& request, const PlannedChunk& chunk, PlanSequence sequence);
  void Accepted(Request& request, Member& member);
  void StartMembers(const Request& request);  // if each has the plan, and the transfer is open
  void TakeProgress(Request& request, Member& member, const HeldRequest& held);
  void NoteEntered(Request& request, const Member& member);
  void MemberDone(Request& request, Member& member);
  void NotePrefilled(Request& request);
  void NoteChunksEnded(Request& request);
  void TakeFromPrefill(Request& request);

  // A plan is given up.
  static bool MayReplan(const Request& request, const absl::Status& status);
  void Replan(Request& request, const absl::Status& why);  // or fails it, after too many
  void GiveUpPlan(Request& request, const absl::Status& why);
  bool FailSuspect(Request& request);  // true: it was one too many for it, and has ended
  void HasLeft(Request& request, InstanceId instance);
  void LeaveTheSilent();

  // Placement of decode.
  void PlaceWithPlan(Request& request);  // if an instance has room and nobody waits
  void PlaceWaiting();                   // first come, first served within a model
  void PlaceWaiting(const std::string& model);
  DecodePlacement::Choice ChooseDecode(const Request& request, bool asked) const;
  bool TryPlace(Request& request);
  void PlaceAt(Request& request, InstanceId instance, bool with_plan);
  bool MustWaitForOlder(const Request& request) const;
  void TakeRefusal(Request& request, const PlaceDecodeRequest& refusal);
  void EnterLine(Request& request);
  void LeaveLine(Request& request);
  void TakeFromDecode(Request& request);
  void Opened(Request& request);
  void AnswerAsking(Request& request, absl::Status status);
  void ForgetAsking(Request& request);
  Placed PlacedOf(const Request& request) const {
    return registry_.PlacedAt(request.decode, request.epoch);
  }

  // Instances come and go.
  void TakeEnded(const Instance& instance, const EndedRequest& ended);
  void NoteHandoff(Request* alive, const Instance& from, const EndedRequest& ended);
  void TakeDecodeEnded(Request& request, const EndedRequest& ended);
  void TakeUnclaimed(Request& request, const absl::Status& why);
  void TakePrefillEnded(Request& request, Member& member, const EndedRequest& ended);
  // What a new stream of an instance that was here begins with: reconnecting.cc.
  void Resync(InstanceId instance, const RegisterRequest& hello);
  void LeaveStream(InstanceId instance, CallId stream);
  void TakeMissing(Request& request, InstanceId instance);
  void SendAgain(Request& request, InstanceId instance, const HeldRequest& held);
  void LeaveDraining(const Instance& instance);
  void Lose(InstanceId instance, const std::string& why, bool left = false);
  void Follow(const Generation& seen);  // takes a higher generation if need be
  // A new orchestrator does not know at once which instances exist. For half a lease, submitted
  // requests wait until instances have reconnected.
  void Settle() { router_side_.HoldUntil(now_ + config_.instance_lease_us / 2); }
  void SubmitEarly();  // what has waited for long enough
  void LosePrefill(Request& request, InstanceId instance, const std::string& why, bool left);
  void LoseDecode(Request& request, const std::string& why);

  void RunTimers();
  void RunTimers(Request& request);
  // A timer of a request was set.
  void Arm(const Request& request) { requests_.Arm(request); }

  // The ends of a request; each erases it.
  void Fail(Request& request, const absl::Status& status);
  void CloseByRouter(Request& request) override;
  void Finish(Request& request, FinishReason reason);
  void Erase(Request& request, const std::string& why);  // cancels wherever it may still be

  absl::Status CheckRequest(const Request& request) const;
  absl::Status CheckPlan(const Request& request) const;
  absl::Status CheckPools() const;

  OrchestratorConfig config_;
  TimeUs now_ = 0;
  bool started_ = false;  // the first event was handled
  std::vector<OrchestratorEffect> effects_;
  Registry registry_;
  orchestrator::PlanSender sender_{&registry_, &effects_};
  orchestrator::RequestTable requests_;
  DecodePlacement placement_;
  orchestrator::AbandonedPlans abandoned_;  // of the requests that are replanning
  orchestrator::ParkedRequests parked_;
  std::set<std::string> moved_;   // models of which a chunk may have begun in this Handle
  std::set<std::string> rolled_;  // of which the rolling planner may start one

  orchestrator::PrefillPools pools_;
  orchestrator::PlanChooser chooser_;
  orchestrator::RollingPlans rolling_;
  GoneList gone_;
  orchestrator::ExplanationLog explanations_;
  orchestrator::RouterSide router_side_;

  uint64_t generation_;
  uint64_t first_epoch_;  // of the generation; another one's requests are left alone
  uint64_t last_epoch_;
  uint64_t last_sequence_ = 0;
  uint64_t refused_ = 0;                                   // for lack of capacity
  std::map<std::pair<std::string, Role>, uint64_t> lost_;  // instances, by model and role
  uint64_t sp_plans_ = 0;
  uint64_t digest_mismatches_ = 0;
};

}  // namespace skein::scheduler
