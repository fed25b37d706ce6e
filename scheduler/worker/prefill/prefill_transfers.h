// PrefillTransfers: what leads from a request's admission to its KV at the decode side: blocks in
// the plans' order, the question for a decode instance, the opened transfer, the handoff of the
// blocks, its outcome. Carries out what PrefillRequests, DecodePlaceCalls and KvOut decide, and
// owns nothing. Part of PrefillCore, and used only on its thread.
//
// A plain request computes from its admission on, whatever the decode side says meanwhile. If that
// side refuses, the request goes on and asks for another place. If it grants blocks when the prompt
// is computed, the whole KV and the result go there at once.
//
// PrefillCore's invariant 3 is its own: requests are admitted, and so ask or open their transfers
// for the first time, in the order of plan_queue.h. And of 6 (CheckInvariants): a plain request is
// in the batch exactly while it computes or yields, last there exactly while it is unplaced, and
// has a transfer exactly while it has a place and blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/kv_out/kv_out.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/prefill/decode_place_calls.h"
#include "scheduler/worker/prefill/prefill_ends.h"
#include "scheduler/worker/prefill/prefill_events.h"
#include "scheduler/worker/prefill/prefill_requests.h"
#include "scheduler/worker/prefill/prefill_steps.h"
#include "scheduler/worker/prefill/sp_plans.h"

namespace skein::scheduler {

class PrefillTransfers {
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
    PrefillEnds* ends = nullptr;
    std::vector<PrefillEffect>* effects = nullptr;
  };
  explicit PrefillTransfers(const Parts& parts) : parts_(parts) {}

  void On(const PlaceDecodeReplied& event);
  // Requests that get blocks now begin.
  void AdmitQueued();
  // Sets the request's decode instance, and opens the transfer if it has blocks. Ignored if the
  // instance is set already.
  void Place(Request& request, const Placed& placed);
  // Its plan has grown: the handoff hears of the blocks that are computed here. REQUIRES: it has
  // blocks.
  void OpenHandoffOf(Request& request);
  void TakeOutcomes();  // of KV on its way
  // All that this instance computes of it is computed; the last step with it has ended.
  void Computed(Request& request);
  // It gives its blocks back and is queued again; at an instance that drains it ends instead, so
  // that another one takes it. What was computed is lost. REQUIRES: it is plain and not placed, and
  // no step in flight has it.
  void Yield(Request& request);

  // In the next report.
  void TellProgress(const SpPlan& plan, const Request& request);
  // It has opened its transfer, here.
  static bool HasOpened(const Request& request);
  // Of a plain request: its prompt is one chunk.
  static uint32_t ChunksDone(const Request& request);
  absl::Status CheckInvariants() const;

 private:
  void Begin(Request& request);
  void Ask(const Request& request);
  void Refused(Request& request, const absl::Status& why);
  void OpenTransfer(Request& request);
  void Opened(Request& request);
  void UsePlace(Request& request);        // REQUIRES: it is placed and has blocks
  void StartComputing(Request& request);  // REQUIRES: it is of an SP plan
  void HandResultOver(Request& request);
  void Tell(const Request& request);

  const Parts parts_;
};

}  // namespace skein::scheduler
