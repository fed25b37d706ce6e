// FeedLead: the lead's side of the step feed (step_feed.h). It proposes steps, starts those that
// all ranks are ready for, and collects their ends. Sans-io: its shell carries the effects out, and
// calls it from one thread.
//
// At most one step runs at this rank and one more is on its way (proposed, or committed), so that
// the next step's messages pass while one runs, and no rank falls behind by more than that.
//
// Bounds. Every wait for members ends: those that do not answer a plan within `answer_us`, or whose
// step has not ended `step_us` after this rank's, end the epoch for all (GroupFailed). Nothing of
// the feed happens after it; the batch is dissolved by the owner once the step that runs has ended.
//
// Invariants, by number (CheckInvariants names them):
//   1. A plan is proposed exactly while an answer of some member is awaited.
//   2. No member has told the end of a step that it was not told to run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/step_feed.h"

namespace skein::scheduler {

struct FeedLimits {
  // For the next message of the other side. An instance that is silent for as long has lost what it
  // runs, too (OrchestratorConfig::instance_silent_us).
  TimeUs answer_us = 1500 * kMillisecondUs;
  TimeUs step_us = 60 * kSecondUs;  // by which other ranks may end a step later
};

// Effect: send to the rank. Messages to one rank arrive in order, or the rank is lost.
struct SendFeed {
  int rank = 0;
  FeedMessage message;
};
// Effect: run this step, then call StepEnded. One at a time.
struct EnterGroupStep {
  GroupStep step;
};
// Effect: the proposed step runs nowhere: `rank` refused it, for a lack that the next plan has to
// heed.
struct StepRefused {
  uint64_t step = 0;
  int rank = 0;
  absl::Status why;
  int64_t free_blocks = 0;  // there
};
// Effect: every rank is ready for the proposed step; it will run.
struct StepCommitted {
  uint64_t step = 0;
};
// Effect: every rank has ended the step.
struct StepCompleted {
  uint64_t step = 0;
  // By rank, as the latest FeedDone; own_tokens also as FeedOwn. Of this rank: the free blocks
  // only.
  std::vector<int64_t> free_blocks;
  std::vector<uint64_t> counted;
  std::vector<int64_t> own_tokens;
  bool own_waits = false;  // of any member, as FeedDone's
};
// Effect: the epoch is over.
struct GroupFailed {
  absl::Status why;
};
using FeedEffect =
    std::variant<SendFeed, EnterGroupStep, StepRefused, StepCommitted, StepCompleted, GroupFailed>;
using FeedEffects = std::vector<FeedEffect>;

// To all ranks but the lead.
inline void SendToMembers(int ranks, const FeedMessage& message, FeedEffects* effects) {
  for (int rank = 1; rank < ranks; ++rank) effects->push_back(SendFeed{rank, message});
}

class FeedLead {
 public:
  // `batch` is this rank's (0) and outlives this. `ranks` >= 2.
  FeedLead(uint64_t epoch, int ranks, GroupBatch* batch, const FeedLimits& limits);

  // Whether a step may be proposed now.
  bool MayPropose() const;
  // No step is proposed, or runs at any rank.
  bool Idle() const { return awaited_.empty() && running_.empty(); }
  // Proposes the step that `plan` describes; its epoch and step are set here. RESOURCE_EXHAUSTED,
  // NOT_FOUND, INVALID_ARGUMENT: this rank's batch refuses it (GroupBatch::Prepare); nothing was
  // sent. REQUIRES: MayPropose().
  absl::Status Propose(FeedPlan plan, TimeUs now, FeedEffects* effects);

  void Take(int rank, const FeedMessage& message, TimeUs now, FeedEffects* effects);
  // The step of the latest EnterGroupStep has ended here. Not OK: it failed, at least here.
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled, TimeUs now,
                 FeedEffects* effects);
  // The member's process died, or its messages are lost.
  void Lost(int rank, const absl::Status& why, FeedEffects* effects);
  // The owner ends the epoch.
  void End(const absl::Status& why, FeedEffects* effects);
  void Tick(TimeUs now, FeedEffects* effects);
  TimeUs NextTick() const;  // kNever: nothing is awaited

  bool over() const { return over_; }
  absl::Status CheckInvariants() const;

 private:
  struct Running {
    uint64_t step = 0;
    std::map<int, uint64_t> digests;  // of ranks that have ended it
    TimeUs due_us = kNever;           // once this rank has
  };

  void TakeReady(int rank, const FeedReady& ready, FeedEffects* effects);
  void TakeRefusal(int rank, const FeedRefusal& refusal, FeedEffects* effects);
  void TakeDone(int rank, const FeedDone& done, FeedEffects* effects);
  void NoteDone(int rank, uint64_t step, uint64_t digest, FeedEffects* effects);
  void Enter(FeedEffects* effects);

  const uint64_t epoch_;
  const int ranks_;
  GroupBatch* const batch_;
  const FeedLimits limits_;
  uint64_t last_step_ = 0;               // that was proposed
  std::set<int> awaited_;                // members that have not answered it
  TimeUs answer_due_us_ = kNever;        // while some are awaited
  std::optional<uint64_t> here_;         // the step that runs at this rank
  std::map<uint64_t, Running> running_;  // steps that some rank has not ended
  std::vector<int64_t> free_blocks_;     // by rank, as each has last told
  std::vector<uint64_t> counted_;        // likewise
  std::vector<int64_t> own_tokens_;      // likewise
  std::set<int> own_waits_;              // ranks that have last told so
  bool over_ = false;
};

}  // namespace skein::scheduler
