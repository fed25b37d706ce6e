// The parts of OrchestratorCore. Included by its own files only.
//   orchestrator_core.cc   submission, timers, the ends of a request
//   membership.cc          instances come, report, go
//   planning.cc            which instances compute a prompt
//   parking.cc             admission, and the wait for an instance that takes the request
//   timelines.cc           what the instances are foreseen to do
//   capacity.cc            prompts that are larger than the memory of an instance
//   rolling_plans.cc       the same under the policy rolling, chunk by chunk
//   assigning.cc           a plan is told to its members
//   replanning.cc          a plan is given up
//   placing.cc             which instance decodes
//   router_streams.cc      routers come, come back, go; the generation
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

#include "scheduler/orchestrator/orchestrator_core.h"
#include "scheduler/orchestrator/registry.h"
#include "scheduler/orchestrator/resync.h"
#include "scheduler/orchestrator/routers.h"
#include "scheduler/orchestrator/timeline.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/placement/queue_time.h"

namespace skein::scheduler {

class OrchestratorCore::Impl {
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
  enum class State {
    kQueued,     // rolling: the planner has not started it
    kAssigning,  // a member has not answered its Assign
    kAssigned,
    kWaiting,  // for decode room
    kReserving,
    kPlaced,
    kReplanning,  // its last plan is being cancelled
    kParked,      // no prefill instance takes it now
  };
  static constexpr size_t kStates = static_cast<size_t>(State::kParked) + 1;

  // An instance's part in the current plan of a request.
  struct Member {
    InstanceId instance;
    bool here = true;         // it has not committed its part, nor was it lost
    bool lacks_plan = false;  // it refused the plan, or told its state without it
    PlanSequence assigned;    // of the last Assign for it; 0: none yet
    bool accepted = false;    // that one
    uint32_t chunks_done = 0;
    TimeUs entered_us = -1;  // when it began to wait for, or to run, its next chunk
  };

  // Computed by the first `members` of the request's members.
  struct Chunk {
    int64_t history = 0;
    int64_t tokens = 0;
    size_t members = 0;
    PlanSequence sequence;
    TimeUs started_us = -1;
    TimeUs ended_us = -1;
  };

  struct PlannedChunk {
    int64_t tokens = 0;
    std::vector<InstanceId> instances;
  };

  struct Request {
    SpecPtr spec;
    bool alone = false;  // asked for: one prefill instance, whatever the policy
    State state = State::kAssigning;
    Epoch epoch;
    uint64_t number = 0;  // by submission
    TimeUs submitted_us = 0;
    TimeUs deadline_us = kNever;

    std::vector<Member> members;  // the lead first; none without a plan
    std::vector<Chunk> chunks;    // all but those that rolling has not started
    bool spanning = false;
    std::set<InstanceId> tried_prefill;  // not to be tried before all others were
    bool unsure = false;                 // its last members were lost when they may have committed

    int64_t rolling_key = 0;       // the rolling planner knows it by this; 0: it does not
    bool rolling_running = false;  // its last chunk has not ended
    // Decided, but a new member of it is not named at the decode instance yet.
    std::optional<PlannedChunk> joining;
    std::set<InstanceId> named;   // at the decode instance
    std::set<InstanceId> naming;  // the same when the Reserve under way was heard

    // In a step with it an engine failed, or the instance was lost while it computed the prompt.
    std::set<InstanceId> engines_failed;
    std::set<InstanceId> lost_under;

    int replans = 0;
    std::set<InstanceId> leaving;  // replanning: may still have it under `left_epoch`
    Epoch left_epoch;
    TimeUs leave_by_us = kNever;  // by the listening clock

    uint64_t waiting_number = 0;  // place in the waiting list, by first asking; 0 = never asked
    TimeUs waiting_since_us = 0;
    InstanceId decode;  // reserving or placed there
    std::set<InstanceId> tried_decode;
    std::set<InstanceId> old_decodes;  // may have blocks of an older epoch in quarantine
    TimeUs reserve_after_us = 0;

    std::optional<CallId> begin_call;  // the stream on which BeginPrefill is to be answered
    TimeUs begin_deadline_us = kNever;

    Explanation explanation;
    std::optional<RouterEnd> router_end;  // it came before the router's close
  };
  using RequestMap = std::map<RequestId, Request>;

  // The prefill instances of a model.
  struct Pool {
    PoolPlanner planner;
    uint64_t version = 0;               // of the registry, when the layout was made
    std::map<InstanceId, int> slot_of;  // of the layout
    Timeline timeline = Timeline(0);    // of all chunks that have not ended, over the layout
  };

  // What a pool can do now.
  struct PoolQueue {
    std::vector<double> queue_s;  // by slot; kAbsentQueueS where nothing may be planned
    int usable = 0;
  };

  void On(const SubmitCalled& event);
  void On(const RouterEnded& event);
  void On(const BeginPrefillCalled& event);
  void On(const RegisterCalled& event);
  void On(const ReportCalled& event);
  void On(const UnregisterCalled& event);
  void On(const WorkerDisconnected& event);
  void On(const RouterConnected& event);
  void On(const RouterReported& event);
  void On(const RouterLeft& event);
  void On(const RouterDisconnected& event);
  void On(const DrainCalled& event);
  void On(const AssignReplied& event);
  void On(const ReserveReplied& event);
  void On(const ReplacePlanningTables& event);
  void On(const OrchestratorTick& event);

  absl::Status MaySubmit(const SubmitCalled& event) const;
  void Submit(const SubmitCalled& event);
  void TellAccepted(const SubmitCalled& event);
  void Note(Degraded kind, Request& request);
  void Enter(Request& request, State state);
  int64_t CountIn(State state) const { return in_state_[static_cast<size_t>(state)]; }

  // Admission and parking: parking.cc.
  absl::Status HasCapacity(const std::string& model) const;
  bool SomeServe(const std::string& model) const;  // of the prefill instances
  bool SomeTake(const std::string& model) const;   // now
  bool SomeMayTakeLater(const Request& request) const;
  bool MustPark(const Request& request) const;
  void Park(Request& request);
  void Unpark(const Request& request);
  void PlanParked();
  // An instance of the model may have room for parked requests.
  void NoteRoom(const std::string& model) { roomy_.insert(model); }
  void TakeFromInstance(Instance& instance, RequestId request);

  Request* Find(RequestId id);
  Request* Find(RequestId id, Epoch epoch);
  static Member* MemberAt(Request& request, InstanceId instance);  // that is here
  static bool HasMembersHere(const Request& request);
  static int64_t PlannedTokens(const Request& request);
  // Of a request that ends: whose reports may still tell that its KV was taken, and how it ended.
  static AwaitedReports AwaitedReportsOf(const Request& request);
  bool plans() const { return config_.planning != nullptr; }

  // Decisions.
  void Plan(Request& request);         // a new plan, or fails it
  void AssignPlain(Request& request);  // without a planner
  void PlanAlone(Request& request, PoolPlanner& pool, const PoolQueue& queue, const char* why);
  void PlanCommitted(Request& request, PoolPlanner& pool, const PoolQueue& queue);
  void FailUnplannable(Request& request);

  // The memory of instances: capacity.cc.
  int64_t PromptBlocks(const Request& request, InstanceId instance) const;
  bool HoldsAll(const Request& request, InstanceId instance) const;  // the prompt's KV, alone
  bool EachHoldsAll(const Request& request, const PoolPlanner& pool, const PoolQueue& queue) const;
  bool Fits(const Request& request, const std::vector<PlannedChunk>& chunks) const;
  std::optional<ChunkPlan> ShareAmong(int sp, int64_t more, const Request& request,
                                      const PoolPlanner& pool, const PoolQueue& queue) const;
  void PlanToFit(Request& request, PoolPlanner& pool, const PoolQueue& queue);
  void FailTooLarge(Request& request);

  Pool* PoolOf(const std::string& model);  // null: nothing to plan with
  PoolQueue QueueOf(const Pool& pool, const Request& request, TimeUs now) const;
  PrefillCandidate PrefillCandidateOf(const Instance& instance) const;
  PlanExplanation& Explained(Request& request, const PoolPlanner* pool, const PoolQueue* queue);

  // What is foreseen: timelines.cc.
  Timeline* TimelineOf(const std::string& model);  // null: nobody plans with it
  std::vector<TimelineChunk> ChunksToCome(const Pool& pool, const std::string& model) const;
  TimelineChunk ForeseenChunk(const Pool& pool, const Request& request, size_t index) const;
  void LayOutTimeline(Pool& pool, const std::string& model);  // anew
  void Foresee(const Request& request, size_t chunk);
  void NoteBegun(Request& request, Chunk& chunk, TimeUs since_us);
  void NoteEnded(Request& request, Chunk& chunk);
  void NoteStarts(const std::string& model);  // of chunks that nothing is in front of any more
  void NoteUnplaced(const Request& request);
  void NotePlaced(const Request& request);  // or given up
  void ForgetPlan(const Request& request);
  absl::Status CheckForeseen() const;

  // Rolling.
  void Enrol(Request& request, PoolPlanner& pool, const PoolQueue& queue);
  void DecideRolling();
  void DecideRolling(const std::string& model, PoolPlanner& pool);
  void StartChunk(Request& request, PoolPlanner& pool, const RollingPlanner::Start& start);
  void Join(Request& request);
  void LeaveRolling(Request& request);

  // A plan and its members.
  void SendPlan(Request& request, const std::vector<PlannedChunk>& chunks);  // under a new epoch
  void AddChunk(Request& request, const PlannedChunk& chunk, PlanSequence sequence);
  void SendAssigns(Request& request, size_t from_chunk, PlanSequence sequence);
  void SendPlainAssign(Request& request, PlanSequence sequence);
  void Accepted(Request& request, Member& member);
  void StartMembers(Request& request);
  void SendStart(const Request& request, const Member& member);
  // Not sent where there is no stream: the next one begins with a resync.
  template <class Effect>
  void Send(Effect effect) {
    const Instance* to = registry_.Find(effect.instance);
    if (to != nullptr && to->connected()) effects_.push_back(std::move(effect));
  }
  void TakeProgress(Request& request, Member& member, const HeldRequest& held);
  void NoteEntered(Request& request, const Member& member);
  static size_t ChunkOf(const Request& request, const Member& member);  // its next one
  void MemberDone(Request& request, Member& member);
  void NotePrefilled(Request& request);
  void NoteChunksEnded(Request& request);
  void TakeFromPrefill(Request& request);

  // A plan is given up.
  static bool MayReplan(const Request& request, const absl::Status& status);
  void Replan(Request& request, const absl::Status& why);  // or fails it, after too many
  void GiveUpPlan(Request& request, const absl::Status& why);
  static bool IsSuspect(const Request& request) {
    return !request.engines_failed.empty() || !request.lost_under.empty();
  }
  bool FailSuspect(Request& request);  // true: it was one too many for it, and has ended
  void HasLeft(Request& request, InstanceId instance);
  void LeaveTheSilent();
  void CancelAt(InstanceId instance, const Request& request, const std::string& why);
  void CancelAtMembers(const Request& request, const std::string& why);

  // Placement of decode.
  void PlaceWaiting();  // first come, first served within a model
  bool TryReserve(Request& request);
  void CallReserveAt(Request& request, const Instance& instance);
  void TakeNaming(Request& request, const absl::Status& status);
  void NamedMore(Request& request, const absl::Status& status);
  bool MustWaitForOlder(const Request& request) const;
  bool MayReserveAgain(const Request& request, InstanceId at, const absl::Status& status) const;
  void BackToWaiting(Request& request);
  void TakeFromDecode(Request& request);
  DecodeCandidate DecodeCandidateOf(const Instance& instance) const;
  void AnswerBegin(Request& request, absl::Status status);
  Placed PlacedOf(const Request& request) const;

  // Instances come and go.
  void TakeEnded(const Instance& instance, const EndedRequest& ended);
  void TakeDecodeEnded(Request& request, const EndedRequest& ended);
  void TakePrefillEnded(Request& request, Member& member, const EndedRequest& ended);
  // What a new stream of an instance that was here begins with: reconnecting.cc.
  void Resync(InstanceId instance, const RegisterRequest& hello);
  void LeaveStream(InstanceId instance, CallId stream);
  void TakeMissing(Request& request, InstanceId instance);
  void SendAgain(Request& request, InstanceId instance, const HeldRequest& held);
  void LeaveDraining(const Instance& instance);
  void Lose(InstanceId instance, const std::string& why, bool left = false);
  // Routers come and go: router_streams.cc.
  enum class RouterGone { kSilent, kDead, kLeft };
  void LoseRouter(uint64_t router, const std::string& why, RouterGone how);
  std::vector<RequestId> RequestsOf(uint64_t router) const;
  void CloseUnlisted(uint64_t router, const std::vector<RouterRequest>& listed);
  void TellAgain(CallId stream, uint64_t router, const std::vector<RouterRequest>& listed);
  void TellState(const Request& request);
  void TellFailed(RequestId id, absl::Status status);
  void Follow(const Generation& seen);  // takes a higher generation if need be
  // A successor does not know at once which instances there are: for half a lease what is submitted
  // waits until they have come back.
  void Settle() { settled_us_ = now_ + config_.instance_lease_us / 2; }
  void SubmitEarly();  // what has waited for long enough
  template <class Of>
  void ForgetEarly(Of of) {
    std::erase_if(early_, [&](const SubmitCalled& one) { return of(one.spec->id); });
  }
  void LosePrefill(Request& request, InstanceId instance, const std::string& why, bool left);
  void LoseDecode(Request& request, const std::string& why);

  void RunTimers();
  void RunTimers(Request& request);
  TimeUs NextTimer(const Request& request) const;
  // A timer of a request was set.
  void Arm(TimeUs at) { timers_us_ = std::min(timers_us_, at); }

  // The ends of a request; each erases it.
  void Fail(Request& request, const absl::Status& status);
  void CloseByRouter(Request& request);  // it wants no more of it, or is gone
  void Finish(Request& request, FinishReason reason);
  void Erase(Request& request, const std::string& why);  // cancels wherever it may still be
  void TakeRouterEnd(const RouterEnd& end);

  absl::Status CheckRequest(const Request& request) const;
  absl::Status CheckPlan(const Request& request) const;
  absl::Status CheckRolling() const;
  absl::Status CheckPools() const;
  static void NoteTimes(Request& request);  // of the chunks, in its explanation
  Explanation ExplanationOf(const Request& request, TimeUs now) const;

  OrchestratorConfig config_;
  TimeUs now_ = 0;
  bool started_ = false;  // the first event was handled
  std::vector<OrchestratorEffect> effects_;
  Registry registry_;
  RequestMap requests_;
  TimeUs timers_us_ = kNever;                                     // no request's timer is earlier
  std::map<std::string, std::map<uint64_t, RequestId>> waiting_;  // model -> by waiting number
  std::set<RequestId> replanning_;
  std::map<std::string, std::map<uint64_t, RequestId>> parked_;  // model -> by submission
  std::vector<RequestId> newly_parked_;                          // in this Handle
  std::set<std::string> roomy_;           // models whose parked requests are to be planned
  std::map<std::string, int64_t> alive_;  // requests, by model
  std::array<int64_t, kStates> in_state_ = {};
  std::set<std::string> moved_;  // models of which a chunk may have begun in this Handle
  std::map<InstanceId, std::set<PlanSequence>> unplaced_;  // of the plans that no decode room has

  std::map<std::string, Pool> pools_;  // by model; only with planning
  std::map<int64_t, RequestId> rolling_keys_;
  int64_t last_rolling_key_ = 0;
  Routers routers_;
  TimeUs settled_us_ = 0;
  std::vector<SubmitCalled> early_;  // submitted before
  GoneList gone_;
  FinishedExplanations finished_;

  uint64_t generation_;
  uint64_t first_epoch_;  // of the generation; another one's requests are left alone
  uint64_t last_epoch_;
  uint64_t last_sequence_ = 0;
  uint64_t last_waiting_ = 0;
  uint64_t submitted_ = 0;
  uint64_t refused_ = 0;  // for lack of capacity
  uint64_t failed_ = 0;
  std::map<std::pair<std::string, Role>, uint64_t> lost_;  // instances, by model and role
  uint64_t spanning_plans_ = 0;
  DegradedCounts degraded_ = {};
};

}  // namespace skein::scheduler
