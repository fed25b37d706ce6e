// PrefillRequests: the requests of a prefill-worker, with their phases and the blocks that they
// hold. Part of PrefillCore. Each call costs the logarithm of the number of requests, or the blocks
// that it moves.
//
// Requests get all their blocks at once, in the order of plan_queue.h. A plain prompt, or the lead
// of an SP plan, must also have room in front. If the first request lacks either, SP plans with
// larger sequences and without a decode place give both back; their blocks are still empty. If that
// is not enough, the oldest plain prompt that such plans wait for is tried in the same way.
//
// A request has two states. Its phase says what is done of its prompt here; its transfer, whether
// the decode side has given it blocks. They move independently, but for an SP plan, whose
// computation waits for the transfer.
//
// KV of a plain prompt may be kept when its request leaves (kept_prompts.h); the next attempt at
// the request gets those blocks, with what is computed in them.
//
// Invariants (CheckInvariants names them, by PrefillCore's numbers):
//   1. Blocks held in the pool are exactly those of the requests that have a table, and the kept.
//   3. The queue holds the queued requests, and no other. None of them has an open transfer. The
//      lead of an SP plan computes only with an open one.
//   6. The set of requests in front, the counts and the earliest timer agree with the requests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/prefill/kept_prompts.h"
#include "scheduler/worker/prefill/plan_queue.h"

namespace skein::scheduler {

struct PrefillRequest {
  // kQueued: it waits for blocks. kHolding: an SP plan that has blocks, and waits for its transfer
  // to open (other members than the lead: for the Start).
  // kYielding: it is in the step in flight; when that has ended, it gives its blocks back and is
  // queued again. kComputed: this instance's part of the prompt is computed.
  // kEnding: it was cancelled or failed, and its blocks are still in use.
  enum class Phase { kQueued, kHolding, kComputing, kYielding, kComputed, kEnding };
  // kUnplaced: its decode instance is not known. kPlaced: it is, and the transfer is opened when
  // the request has blocks (of a member that does not lead: when the first of them are named).
  // kOpened: the decode side has granted blocks.
  enum class Transfer { kUnplaced, kPlaced, kOpened };
  // Both at once, as reports name them: NameOf.
  enum class Standing {
    kQueued,
    kAsking,          // an SP plan that holds blocks, and computes nothing yet
    kComputingAhead,  // before its transfer is open
    kComputing,
    kYielding,
    kComputed,    // but its transfer is not open
    kCommitting,  // its KV is on its way
    kEnding,
  };
  static constexpr size_t kStandings = static_cast<size_t>(Standing::kEnding) + 1;
  // kLead: of an SP plan; it opens the transfer. kMember: another member of one.
  enum class Kind { kPlain, kLead, kMember };

  SpecPtr spec;
  Epoch epoch;
  PlanSequence sequence;
  Kind kind = Kind::kPlain;
  bool suspect = false;  // as its Assign says
  // An SP plan: a Start came after its last Assign, so no member lacks any of it.
  bool all_have_plan = false;
  TimeUs arrived_us = 0;
  TimeUs started_us = kNever;     // the first step with it
  TimeUs deadline_us = kNever;    // of the request
  TimeUs join_until_us = kNever;  // ends if it has no blocks by then
  int64_t blocks_wanted = 0;      // while queued
  bool charged = false;           // its tenant, for its turn: not again if it gives blocks back

  // PrefillRequests sets these once the request is added; null blocks while queued.
  Phase phase = Phase::kQueued;
  Transfer transfer = Transfer::kUnplaced;
  BlockTable blocks;
  // Tokens of the prompt whose KV came with its blocks: an attempt before it computed them here.
  int64_t kept_tokens = 0;
  bool computed = false;  // this instance's whole part

  Placed placed;  // the decode instance, if it is known
  // The last decode instance that did not open the transfer, and what it said.
  InstanceId refused_by;
  absl::Status refused_why;
  InstanceId writer;     // this instance's name towards the decode side
  KvOut::Result result;  // as far as it is computed
  // Of its steps with other instances so far: the one through host memory, if there was any.
  std::optional<RingPath> ring;
  bool ring_broken = false;  // one of them failed

  absl::Status end_status;       // when ending: what it ends with
  bool must_tell_abort = false;  // when ending: the decode side may have granted blocks

  RequestId id() const { return spec->id; }
  bool IsPlain() const { return kind == Kind::kPlain; }
  bool IsPlaced() const { return transfer != Transfer::kUnplaced; }
  bool IsOpened() const { return transfer == Transfer::kOpened; }
  // It opens the transfer, which takes the decode side's blocks. Other members never are in front.
  bool OpensTransfer() const { return kind != Kind::kMember; }
  bool IsEnding() const { return phase == Phase::kEnding; }
  Standing standing() const;
};

class PrefillRequests {
 public:
  using Phase = PrefillRequest::Phase;
  using Transfer = PrefillRequest::Transfer;
  using Standing = PrefillRequest::Standing;
  struct Count {
    std::array<int64_t, PrefillRequest::kStandings> by_standing{};
    int64_t plain_tokens = 0;  // of the plain prompts that are queued
    int64_t operator[](Standing one) const { return by_standing[static_cast<size_t>(one)]; }
    // As a PrefillSnapshot names them.
    int64_t queued() const { return (*this)[Standing::kQueued]; }
    int64_t asking() const { return (*this)[Standing::kAsking] + (*this)[Standing::kComputed]; }
    int64_t computing() const {
      return (*this)[Standing::kComputingAhead] + (*this)[Standing::kComputing] +
             (*this)[Standing::kYielding];
    }
    int64_t committing() const { return (*this)[Standing::kCommitting]; }
    bool operator==(const Count&) const = default;
  };

  // `ahead` and `step`: see PlanQueue.
  PrefillRequests(int64_t total_blocks, int64_t ahead, const BatchLimits& step)
      : pool_(total_blocks), queue_(ahead, step) {}

  // A new request, queued. REQUIRES: its id is not known.
  PrefillRequest& Add(PrefillRequest request);
  // REQUIRES: nothing touches its blocks.
  void Erase(RequestId id);
  // The same, and its prompt is kept until then. REQUIRES: a plain one whose whole prompt is
  // computed.
  void EraseAndKeep(RequestId id, TimeUs until_us);

  // Null: there is none (FindLive: or it is ending). Pointers hold until Erase.
  PrefillRequest* Find(RequestId id);
  const PrefillRequest* Find(RequestId id) const;
  PrefillRequest* FindLive(RequestId id, Epoch epoch);
  PrefillRequest& at(RequestId id) { return requests_.at(id); }
  const PrefillRequest& at(RequestId id) const { return requests_.at(id); }
  const std::map<RequestId, PrefillRequest>& all() const { return requests_; }

  // The next queued request that gets blocks and room in front: a plain one in kComputing now, one
  // of an SP plan in kHolding; null: none does. `gave_back`: those that are queued again, because
  // it took their blocks or their room in front.
  PrefillRequest* Admit(std::vector<RequestId>* gave_back, TimeUs now = 0);
  // It gives its blocks back; what was computed in them is lost. REQUIRES: it has blocks, is not
  // ending and not opened, and nothing touches its blocks.
  void BackToQueue(PrefillRequest& request);
  // More blocks, behind those it has, so that it has `wanted` at least. False: there are too few.
  // REQUIRES: it has blocks.
  bool Extend(PrefillRequest& request, int64_t wanted);

  void SetPlaced(PrefillRequest& request, const Placed& placed);  // REQUIRES: it is not opened
  void ClearPlaced(PrefillRequest& request);                      // it asks for another
  void SetOpened(PrefillRequest& request);  // REQUIRES: it has blocks, and is not ending
  // To kComputing or a later phase. A request that has computed and is opened, or is ending, leaves
  // the front.
  void SetPhase(PrefillRequest& request, Phase phase);
  void LeaveFront(RequestId id) { queue_.LeaveFront(id); }
  // `tokens` of its SP plan were computed here.
  void ChargePiece(const PrefillRequest& request, int64_t tokens) {
    queue_.ChargePiece(PlaceOf(request), tokens);
  }
  // An SP plan of a smaller sequence waits for blocks.
  bool SpPlanWaitsBefore(PlanSequence sequence) const { return queue_.SpPlanWaitsBefore(sequence); }

  // Of requests whose deadline, or time to join, has passed: each once.
  std::optional<RequestId> TakeOverdue(TimeUs now);
  void GiveUpKept(TimeUs now);  // those whose time has passed
  TimeUs NextDeadline() const { return std::min(timers_.Next(), kept_.NextDeadline()); }

  BlockCounts blocks() const;  // the kept ones are `cached`: free for whoever needs them
  // Kept up to date with each change of a request, so that a report walks over none.
  const Count& CountRequests() const { return count_; }
  // "queued", "asking", "computing-ahead" and so on, as Standing; empty: there is none.
  std::string_view NameOf(RequestId id) const;
  absl::Status CheckInvariants() const;

 private:
  static PlanQueue::Place PlaceOf(const PrefillRequest& request) {
    return {.sequence = request.sequence,
            .id = request.id(),
            .sequence_parallel = !request.IsPlain(),
            .tenant = request.spec->tenant,
            .weight = request.spec->tenant_weight};
  }
  static TimeUs DeadlineOf(const PrefillRequest& request);
  void Enter(PrefillRequest& request, Phase phase, Transfer transfer);
  void CountIn(const PrefillRequest& request, int64_t times);
  void Wait(const PrefillRequest& request);
  void Remove(RequestId id);  // but for its blocks
  void FreeTable(const BlockTable& blocks) {
    if (blocks != nullptr) pool_.Free(*blocks);
  }
  // Kept prompts give way, the oldest first, but what is kept for request `but`.
  absl::StatusOr<BlockTable> ExtendTable(const BlockTable& table, int64_t count, RequestId but);
  // All its blocks, if it may enter the front or needs not. False: it has none, and kept prompts
  // have given way.
  bool TakeRoom(PrefillRequest& request);
  bool TakeRoomOfYounger(PrefillRequest& request, std::vector<RequestId>* gave_back);
  bool GetsRoom(PrefillRequest& request, std::vector<RequestId>* gave_back);  // in either way
  absl::Status CheckStates(const PrefillRequest& request) const;

  std::map<RequestId, PrefillRequest> requests_;
  BlockPool pool_;
  KeptPrompts kept_;
  PlanQueue queue_;
  TimerQueue<RequestId> timers_;
  Count count_;
};

}  // namespace skein::scheduler
