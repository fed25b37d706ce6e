// ExplanationLog: explanations of live and recently ended requests, by name or as a list; counts of
// failures and degradations over all requests; and notes of switches of formations, of which the
// explanations tell (switch_notes.h). Part of OrchestratorCore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/explain/switch_notes.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

enum class ListOrder { kRecent, kSlowest };

class ExplanationLog {
 public:
  // The number of ended requests whose explanations are kept.
  explicit ExplanationLog(size_t ended_max) : ended_(ended_max) {}

  // It was submitted, and has its names: it is found by them from here on, until it ends.
  void Begin(const Request& request);
  void Note(Degraded kind, Request* request);
  // Its router has told how often it moved from one cell to another. It is one request that came
  // here; the explanation tells all its moves.
  void NoteMoves(uint32_t moves, Request* request);
  // Its decode instance has told how often it was preempted under its latest plan.
  void NotePreemptions(uint32_t so_far, Request* request);
  void NoteFailed(Request* request);
  // Its decode instance took its blocks now, by its latest plan: the switches of that instance's
  // group count from here on.
  void NotePlaced(Request* request);
  // The latest plan of it is given up, or the request ends: the times of its chunks, and the
  // switches of its decode instance's group, are kept. A plan that was given up keeps its switches.
  void NoteTimes(Request* request) const;
  // As it will be kept when it ends now, with this text as its state.
  Explanation AtEnd(const Request& request, const std::string& why, TimeUs now) const;
  // It ends now, with this text as its state: its explanation is moved out of it.
  void End(Request* request, const std::string& why, TimeUs now, AwaitedReports reports);
  // The explanation of a request that has ended; null if it is not kept any more.
  Explanation* FindEnded(RequestId id) { return ended_.Find(id); }
  // A part of the plan `epoch` was handed over: of the request that `explanation` tells of, null:
  // of one that is not remembered. An instance that reports it again is counted once, but then.
  void NoteHandoff(Epoch epoch, HandoffExplanation handoff, Explanation* explanation);
  // The same for what an instance exchanged with the others of the plan.
  void NoteRing(Epoch epoch, RingExplanation ring, Explanation* explanation);
  // For a request that has ended; ignored if its explanation is not kept any more.
  void TakeEnded(const EndedRequest& ended, InstanceId instance);
  void TakeRouterEnd(const RouterEnd& end);

  // At most 16 requests of that name, live ones first. Costs nothing for other requests.
  std::vector<Explanation> Find(const RequestTable& requests, const std::string& name,
                                TimeUs now) const;
  // Without their plans. Looks at no more than `limit` live requests.
  std::vector<Explanation> List(const RequestTable& requests, ListOrder order, size_t limit,
                                TimeUs now) const;

  SwitchNotes* switches() { return &switches_; }
  const SwitchNotes* switches() const { return &switches_; }

  absl::Status CheckInvariants() const;
  uint64_t failed() const { return failed_; }
  const DegradedCounts& degraded() const { return degraded_; }
  const std::map<std::string, PlanTotals>& plans() const { return ended_.totals(); }  // by model

 private:
  // Whether `list` of the plan `epoch` lacks what `from` tells; true if nothing is remembered.
  template <class Told>
  static bool IsNew(Epoch epoch, InstanceId from, std::vector<Told> PlanExplanation::*list,
                    const Explanation* explanation);
  void Count(Degraded kind, Explanation* explanation);  // null: of one that is not remembered
  Explanation ExplanationOf(const Request& request, TimeUs now) const;

  FinishedExplanations ended_;
  SwitchNotes switches_;
  NameIndex alive_;  // by Request::number
  DegradedCounts degraded_ = {};
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler::orchestrator
