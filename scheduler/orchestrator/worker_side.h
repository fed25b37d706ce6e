// WorkerSide: the streams of workers. An instance registers or reconnects, reports, answers a plan,
// leaves, drains or is lost; its reports are reconciled with the orchestrator's records. Owns the
// counts of what was lost or did not fit. Part of OrchestratorCore.
//
// A decode instance whose lease expires while routers hear it (registry/evidence.h) is missed, not
// lost: only the link between it and the orchestrator is cut. Its requests stream on, and it gets
// nothing new. A handoff to it goes on, too: its writer tells that the transfer is open. When it
// reports, it serves again; when no router hears it, it is lost.
//
// An instance whose stream breaks is dialled. If its address refuses the connection now, and did
// not when it came, no process is there, and it is lost at once, unless routers hear it
// (silence.cc).
//
// An instance that is quiet (registry.h) gets nothing new, and prompts that it has not begun go to
// others. When it is silent, and no router hears it, it keeps nothing: what it computed or streamed
// goes on elsewhere, and is cancelled there under its epoch should it speak again. It stays
// registered until its lease ends, so what it says then costs it nothing but its requests.
//
// An instance whose step does not end is suspect (placement/step_age.h): it gets nothing new, and
// prompts that it has not begun go to others. If it lasts it hangs, and keeps nothing: what it
// computed or streamed goes on elsewhere. So it is for one that is slow beside its peers
// (registry/pace_watch.h): less, nothing new, nothing; but prompts that a slow one has begun stay.
// Neither happens where no other instance of its pool can be placed at.
//
// A worker that connects lists what it holds. What it holds without cause is cancelled there; what
// it lacks is sent again or planned again (reconnecting.cc). A hello that arrives after a later one
// is refused and changes nothing (registry/latest_streams.h): what was sent since is not in it. A
// worker may report failures of its engine under requests that routers have yet to submit.
//
// Invariants (CheckInvariants, by the core's numbers): 2, a request is on live instances only, and
// known there; 5, the instances of a model are alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/peer_build.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/groups/formations.h"
#include "scheduler/orchestrator/groups/group_control.h"
#include "scheduler/orchestrator/groups/group_needs.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/registry/gone_list.h"
#include "scheduler/orchestrator/registry/latest_streams.h"
#include "scheduler/orchestrator/registry/pace_watch.h"
#include "scheduler/orchestrator/registry/refused_peers.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/replanner.h"
#include "scheduler/orchestrator/reported_ends.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/engine_failures.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/router_side.h"

namespace skein::scheduler::orchestrator {

class WorkerSide {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    const PlanNumbers* numbers = nullptr;
    PrefillFlow* prefill = nullptr;
    DecodeFlow* decode = nullptr;
    Replanner* replanner = nullptr;
    RouterSide* routers = nullptr;
    PlanSender* sender = nullptr;
    ExplanationLog* explanations = nullptr;
    GoneList* gone = nullptr;
    RefusedPeers* refused = nullptr;
    GroupControl* groups = nullptr;
    GroupNeeds* needs = nullptr;
    Formations* formations = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
    PeerBuild build = {};  // of this process
  };
  using LostCounts = std::map<std::pair<std::string, Role>, uint64_t>;  // by model and role

  struct Limits {
    TimeUs lease_us = 0;                   // of an instance
    PaceConfig pace = {};                  // which instances are slow
    TimeUs hung_step_us = 10 * kSecondUs;  // IsStepHung (placement/step_age.h)
  };
  WorkerSide(const Limits& limits, const Parts& parts)
      : limits_(limits),
        parts_(parts),
        ended_({.requests = parts.requests,
                .registry = parts.registry,
                .numbers = parts.numbers,
                .prefill = parts.prefill,
                .decode = parts.decode,
                .replanner = parts.replanner,
                .routers = parts.routers,
                .explanations = parts.explanations,
                .ends = parts.ends,
                .effects = parts.effects}),
        paces_(limits.pace) {}

  // `own`: this orchestrator's generation. REQUIRES: it is not lower than the one the worker saw.
  void Connect(const RegisterCalled& event, const Generation& own, TimeUs now);
  void On(const ReportCalled& event, TimeUs now);
  void On(const AssignReplied& event, TimeUs now);
  void On(const UnregisterCalled& event, TimeUs now);
  void On(const WorkerDisconnected& event, TimeUs now);
  void On(const WorkerDialled& event, TimeUs now);
  // See Registry::Drain. The worker hears of it; from now on nothing is placed there.
  absl::Status Drain(const DrainRequest& request, TimeUs now);
  void LoseTheSilent(TimeUs now);
  void LeaveTheSilent(TimeUs now);             // after it: those that are not lost yet
  void OrderGroups(TimeUs now);                // to make communicators, where that is due
  void CloseStreams(const absl::Status& why);  // of all

  // Of engines under this request, which is submitted now.
  EarlyFailures::Engines TakeEarlyFailures(RequestId id) { return ended_.TakeEarlyFailures(id); }

  const LostCounts& lost() const { return lost_; }
  uint64_t misses() const { return misses_; }  // how often an instance was missed
  const PaceWatch& paces() const { return paces_; }
  uint64_t hung() const { return hung_; }  // how often requests left an instance that hangs
  uint64_t digest_mismatches() const { return digest_mismatches_; }
  absl::Status CheckInvariants() const;

 private:
  absl::StatusOr<Registry::Registration> Register(const RegisterCalled& event, TimeUs now);
  void NoteRefused(const WorkerIdentity& identity, const absl::Status& why, TimeUs now);
  std::vector<std::string> PeersOf(const Instance& instance) const;
  void Introduce(const Instance& instance);
  void NoteRoom(const WorkerIdentity& identity);
  void LeaveStream(InstanceId instance, CallId stream);

  // What moves off an instance that is still here: leaving.cc.
  void LeaveDraining(const Instance& instance, TimeUs now);
  PoolRoom RoomToMove(const std::string& model) const;
  void LeaveSuspect(const Instance& instance, TimeUs now);
  void LeaveStuck(const Instance& instance, TimeUs now);
  void LeaveQuiet(const Instance& instance, TimeUs now);
  void LeaveSilent(const Instance& instance, TimeUs now);
  static bool MayBeInStep(const Request& request, InstanceId at);
  void MoveOff(Request& request, InstanceId from, const absl::Status& why, TimeUs now);
  void Judge(Instance& instance, TimeUs now);  // its pace

  // What a new stream begins with: reconnecting.cc.
  void AddMoved(const Instance& instance, const std::vector<HeldRequest>& held,
                std::vector<HeldRequest>* cancel) const;
  void Resync(InstanceId instance, const RegisterRequest& hello, TimeUs now);
  void SendAgain(Request& request, InstanceId instance, const HeldRequest& held, TimeUs now);
  void TakeMissing(Request& request, InstanceId instance, TimeUs now);

  bool MayMiss(const Instance& instance) const;  // instead of losing it
  enum class Loss {
    kLeft,    // it has unregistered
    kEnded,   // its process has ended, as far as anyone can tell: it may have crashed
    kSilent,  // its stream stands, and nothing comes: it is cut off, or its host is dead
  };
  struct Lost {
    InstanceId id;
    Incarnation incarnation;
    Loss how = Loss::kLeft;
    std::string why;
  };
  // Its requests move off it before it is forgotten.
  void Lose(InstanceId instance, const std::string& why, Loss how, TimeUs now);
  void LosePrefill(Request& request, const Lost& lost, TimeUs now);
  void LoseDecode(Request& request, const std::string& why, TimeUs now);

  absl::Status CheckPlaces(const Request& request) const;
  absl::Status CheckPools() const;

  const Limits limits_;
  Parts parts_;
  ReportedEnds ended_;
  LostCounts lost_;
  uint64_t misses_ = 0;
  LatestStreams streams_;
  std::set<InstanceId> leaving_;  // that do not serve, and were left by incomplete plans
  // Suspect prefill instances whose unbegun requests were planned anew.
  std::set<InstanceId> left_suspects_;
  std::set<InstanceId> left_stuck_;  // those that hang or are set aside, and keep nothing
  PaceWatch paces_;
  uint64_t hung_ = 0;
  uint64_t digest_mismatches_ = 0;
};

}  // namespace skein::scheduler::orchestrator
