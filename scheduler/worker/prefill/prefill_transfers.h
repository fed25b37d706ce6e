// PrefillTransfers: what leads from a request's admission to its KV at the decode side: blocks in
// the plans' order, the question for a decode instance, the opened transfer, the handoff of the
// blocks, its outcome. Carries out what PrefillRequests, DecodePlaceCalls and KvOut decide, and
// owns nothing. Part of PrefillCore, and used only on its thread.
//
// PrefillCore's invariant 3 is its own: requests open their transfers in plan-sequence order.
#pragma once

#include <vector>

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
  };
  explicit PrefillTransfers(const Parts& parts) : parts_(parts) {}

  void On(const PlaceDecodeReplied& event);
  // Requests that get blocks now begin.
  void AdmitQueued();
  // Its decode instance is known. One that knows it: nothing.
  void Place(Request& request, const Placed& placed);
  // Its plan has grown: the handoff hears of the blocks that are computed here. REQUIRES: it has
  // blocks.
  void OpenHandoffOf(Request& request);
  void TakeOutcomes();  // of KV on its way

  // In the next report.
  void TellProgress(const SpPlan& plan, const Request& request);
  // It has opened its transfer, here.
  static bool HasOpened(const Request& request);

 private:
  void Ask(const Request& request);
  void OpenTransfer(Request& request);
  void StartComputing(Request& request);
  void TellOpened(const Request& request);

  const Parts parts_;
};

}  // namespace skein::scheduler
