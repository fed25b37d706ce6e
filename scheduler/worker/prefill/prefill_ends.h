// PrefillEnds: how requests end in a prefill-worker: each accepted (id, epoch) once, told to the
// orchestrator and, where it may have granted blocks, to the decode side. Owns what is remembered
// of ended requests, their counts, and the requests that left by the present event. What a plain
// request has computed is kept for a while, for its next attempt (kept_prompts.h). Part of
// PrefillCore, and used only on its thread. A call costs O(log requests), but for EndThose.
//
// Invariants (CheckInvariants names them, by PrefillCore's numbers):
//   2. A request in the step in flight or with a handoff under way keeps its blocks.
//   4. Every accepted (id, epoch) ends exactly once: what is ending leaves as soon as nothing
//      touches its blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/decode_place_calls.h"
#include "scheduler/worker/prefill/prefill_events.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/prefill_steps.h"
#include "scheduler/worker/prefill/sp_plans.h"
#include "scheduler/worker/tombstones.h"

namespace skein::scheduler {

class PrefillEnds {
 public:
  using Request = PrefillRequest;

  // Not owned; they outlive it.
  struct Parts {
    const TimeUs* now = nullptr;  // of the event
    PrefillRequests* requests = nullptr;
    SpPlans* sp_plans = nullptr;
    DecodePlaceCalls* place_calls = nullptr;
    PrefillSteps* steps = nullptr;
    KvOut* kv_out = nullptr;
    Membership* membership = nullptr;
    std::vector<PrefillEffect>* effects = nullptr;
  };
  // `rpc_timeout_us`: of an Abort to the decode side. `keep_us`: how long a computed prompt is
  // kept; 0: not at all.
  PrefillEnds(TimeUs rpc_timeout_us, TimeUs keep_us, const Parts& parts)
      : rpc_timeout_us_(rpc_timeout_us), keep_us_(keep_us), parts_(parts) {}

  // It is given up. Erases it, now or when nothing touches its blocks any more. One that is ending
  // already: nothing.
  void End(Request& request, const absl::Status& status);
  void EndThose(const std::function<bool(const Request&)>& which, const absl::Status& status);
  // Erases a request that is ending, when nothing touches its blocks. Others are fine.
  void MaybeLeave(Request& request);
  // Its part is done, or it has ended. Nothing touches its blocks.
  void Erase(Request& request, const absl::Status& status, const HandoffPath& path = {});
  // An accepted plan that waited for the blocks of an older one.
  void EndWaiting(RequestId id, Epoch epoch, const absl::Status& status);

  // What comes under this epoch is too late.
  void Bury(RequestId id, Epoch epoch) { tombstones_.Put(id, epoch, /*committed=*/false); }
  const Tombstones& tombstones() const { return tombstones_; }
  // Erased since the last call: plans may have waited for their blocks.
  std::vector<RequestId> TakeLeft() { return std::exchange(left_, {}); }

  uint64_t committed() const { return committed_; }
  uint64_t failed() const { return failed_; }
  // With what an instance that drains ends a request that it has not begun.
  static absl::Status HandedBack();
  absl::Status CheckInvariants() const;

 private:
  bool MayKeep(const Request& request) const;

  const TimeUs rpc_timeout_us_;
  const TimeUs keep_us_;
  const Parts parts_;
  Tombstones tombstones_;
  std::vector<RequestId> left_;
  uint64_t committed_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
