// DecodeOrders: what the orchestrator orders about requests at a decode-worker, and what a writer
// aborts: announcements, withdrawals, cancels. Owns the announced requests, which have no blocks
// yet, and aborts that came before their announcement. Part of DecodeCore, and used only on its
// thread. A call costs O(log requests), but for those that share a prompt.
//
// An announced request ends when it is cancelled, aborted, planned anew, over its time, or when the
// one whose prompt it shares has ended (EndSharers). It is withdrawn without an end.
// TransferOpening and PromptSharing take it when it gets blocks, GroupRequests when a bound group
// computes it.
//
// Invariants (CheckInvariants names them, by DecodeCore's numbers):
//   5. No request is announced while another epoch of it lives.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_ends.h"
#include "scheduler/worker/decode/decode_events.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/early_aborts.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/kv_in/announcements.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"

namespace skein::scheduler {

class DecodeOrders {
 public:
  using Announced = Announcements::Announced;

  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    DecodeEnds* ends = nullptr;
    BoundGroup* group = nullptr;
    Membership* membership = nullptr;
  };
  // `request_deadline_us`: of an announced request whose spec names no deadline.
  DecodeOrders(TimeUs request_deadline_us, const Parts& parts)
      : request_deadline_us_(request_deadline_us), parts_(parts) {}

  void On(const AnnounceCalled& event);
  void On(const WithdrawCalled& event);
  void On(const CancelCalled& event);
  void On(const AbortCalled& event);
  // Ends every epoch of the request up to this one, wherever it stands.
  void CancelUpTo(RequestId id, Epoch epoch, const std::string& why);
  // The orchestrator does not know what was held so at the start of this stream. It may have placed
  // a request here again since, under the same epoch: one that had no blocks is withdrawn, which
  // ends nothing, and one that has opened since stays.
  void CancelUnknown(const HeldRequest& held);
  void RunTimers();  // ends those that are over their time

  const Announced* Find(RequestId id) const { return announced_.Find(id); }
  const std::map<RequestId, Announced>& all() const { return announced_.all(); }
  // It has blocks now. REQUIRES: Find(id).
  Announced Take(RequestId id) { return announced_.Take(id); }
  // Those that a bound group is to compute, in the order in which they came.
  std::vector<RequestId> for_groups() const { return announced_.for_groups(); }
  // REQUIRES: Find(id).
  void EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status);
  // Those that were announced to share this one's prompt.
  std::set<RequestId> SharersOf(RequestId id) const { return announced_.SharersOf(id); }
  void EndSharers(RequestId from);  // the KV that they were to share will not come

  // The writer aborted this epoch before it was announced here.
  bool HasAborted(RequestId id, Epoch epoch, Incarnation writer) const {
    return early_aborts_.Has(id, epoch, writer);
  }

  // Whether it is a writer of an older build, which shows no permit. Permits themselves are checked
  // by the shell (OpenTransferRequest::unpermitted).
  bool IsExcused(Incarnation writer) const { return excused_.count(writer) > 0; }

  // Why a message about a sequence comes too late.
  KvIn::Gone WhyGone(RequestId id, Epoch epoch) const;
  TimeUs NextDeadline() const { return announced_.NextDeadline(); }
  absl::Status CheckInvariants() const;

 private:
  // When there are more, all are forgotten; further announcements name those again that still
  // write.
  static constexpr size_t kExcusedMax = 4096;

  void CancelUnclaimed(const CancelRequest& cancel);
  bool MayAnnounce(const AnnounceRequest& request);
  void AwaitPrompt(RequestId id, RequestId from);
  void TakeEarlyAborts(const AnnounceRequest& request);
  void Excuse(const AnnounceRequest& request);
  void Withdraw(RequestId id, Epoch epoch);
  bool IsStray(const AbortRequest& abort) const;

  const TimeUs request_deadline_us_;
  const Parts parts_;
  Announcements announced_;
  EarlyAborts early_aborts_;
  std::set<Incarnation> excused_;  // processes, at most kExcusedMax
};

}  // namespace skein::scheduler
