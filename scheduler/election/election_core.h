// ElectionCore: when one candidate campaigns for a leadership, and until when it leads. Pure: it
// asks its shell for calls to a store and is told how they ended; services/store/election.h is the
// shell, and states the promise.
//
// One call to the store is in flight at a time. A candidate grants itself a lease only when the
// store shows no leader, and claims the leadership with it: one commit, which fails unless there is
// still no leader and the generation is the one it saw. A leader renews its lease every quarter of
// it, and again soon after a failure. A lease counts from the moment at which its call was ordered,
// which is before the store can have handled it, and ends a tenth early: for clocks of different
// speed, and for the time between a look at the clock and what is done then.
//
// A leader that its owner finds deaf steps aside: it gives the leadership up and lets another one
// claim it. It claims again when its owner has heard somebody, or when the store has shown no
// leader for two leases: then there is no other one. How often it steps aside is bounded: for 4
// leases after it did so it does not again, then for 8, up to 64. A reign of 64 leases ends that.
//
// A call whose outcome is unknown counts as failed and as done: after a claim without an answer the
// lease is revoked, so that a leadership that nobody acts on does not last, and its generation is
// never used.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/backoff.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// What the store has at one revision. Revision 0 of an entry: there is none.
struct ElectionView {
  int64_t revision = 0;  // of the store
  int64_t leader_revision = 0;
  int64_t generation_revision = 0;
  uint64_t generation = 0;
};

// How a call ended, if not well.
enum class ElectionFailure {
  kRefused,  // surely not carried out: a comparison failed, or the lease has ended
  kUnknown,  // no answer; it may have been carried out
};

struct ElectionEvent {
  struct Seen {  // the store's watch; views may be old, also older than the candidate's own commits
    ElectionView view;
  };
  struct Unseen {};  // the store cannot be read, or what it has is no election's
  // Ends of calls. Each effect below that is a call gets exactly one.
  struct Granted {
    uint64_t lease = 0;
    TimeUs ttl_us = 0;
  };
  struct Committed {  // Claim, Raise
    int64_t revision = 0;
  };
  struct Renewed {
    TimeUs ttl_us = 0;
  };
  struct Revoked {};
  struct Failed {
    ElectionFailure failure = ElectionFailure::kUnknown;
  };
  struct Resign {};
  struct StepAside {};  // the owner hears none of those that it leads
  struct Heard {};      // the owner has heard one of them while another one led
  struct Raise {
    uint64_t generation = 0;
  };
  struct Tick {};
  using Any = std::variant<Seen, Unseen, Granted, Committed, Renewed, Revoked, Failed, Resign,
                           StepAside, Heard, Raise, Tick>;
};

struct ElectionEffect {
  // Calls to the store, each with the time by which its end has to be told, or about.
  struct Grant {
    TimeUs ttl_us = 0;
    TimeUs timeout_us = 0;
  };
  // REQUIRES of the commit: no leader's entry, and the generation's entry at its revision. It puts
  // both, the leader's with the lease.
  struct Claim {
    uint64_t lease = 0;
    int64_t generation_revision = 0;
    uint64_t generation = 0;
    TimeUs timeout_us = 0;
  };
  struct Renew {
    uint64_t lease = 0;
    TimeUs timeout_us = 0;
  };
  // REQUIRES of the commit: both entries at their revisions. It puts the generation's only.
  struct PutGeneration {
    int64_t leader_revision = 0;
    int64_t generation_revision = 0;
    uint64_t generation = 0;
    TimeUs timeout_us = 0;
  };
  struct Revoke {
    uint64_t lease = 0;
    TimeUs timeout_us = 0;
  };
  // To the owner.
  struct Led {
    uint64_t generation = 0;
  };
  struct Lost {
    absl::Status why;  // OK: it resigned; CANCELLED: it stepped aside. See Election::Hooks::lost
  };
  using Any = std::variant<Grant, Claim, Renew, PutGeneration, Revoke, Led, Lost>;
};

class ElectionCore {
 public:
  using Effects = std::vector<ElectionEffect::Any>;

  // `lease_us`: what leases are asked for, at least 1 ms.
  explicit ElectionCore(TimeUs lease_us);

  Effects Handle(const ElectionEvent::Any& event, TimeUs now);

  // When Tick has to be handled next, or kNever.
  TimeUs NextDeadline() const;

  // This candidate leads while now < LeadsUntil(), in its owner's eyes; 0: it does not lead.
  TimeUs LeadsUntil() const { return leading_ ? until_us_ : 0; }
  uint64_t generation() const { return generation_; }  // of the leadership, or of the last one
  bool StandsAside() const { return aside_; }          // and wants to hear of Heard
  // It resigned, and no call is in flight.
  bool Ended() const { return resigned_ && call_ == Call::kNone; }
  // Whether Resign's call told the store. True if there was nothing to tell.
  bool gave_up() const { return gave_up_; }

 private:
  enum class Call { kNone, kGrant, kClaim, kRenew, kRaise, kRevoke };

  void On(const ElectionEvent::Seen& event);
  void On(const ElectionEvent::Unseen&);
  void On(const ElectionEvent::Granted& event);
  void On(const ElectionEvent::Committed& event);
  void On(const ElectionEvent::Renewed& event);
  void On(const ElectionEvent::Revoked&);
  void On(const ElectionEvent::Failed& event);
  void On(const ElectionEvent::Resign&);
  void On(const ElectionEvent::StepAside&);
  void On(const ElectionEvent::Heard&) { aside_ = false; }
  void On(const ElectionEvent::Raise& event);
  void On(const ElectionEvent::Tick&) {}

  // Orders the next call, if none is in flight.
  void Advance();
  void AdvanceLeader();
  bool Free() const;  // the view has no leader
  TimeUs ClaimAt() const;
  void Lapse();
  void Lose(absl::Status why);
  void ClaimFailed();
  TimeUs EndOf(TimeUs ttl_us) const { return ordered_us_ + ttl_us - ttl_us / 10; }
  TimeUs CallTimeout() const { return ttl_us_ / 4; }
  template <class Effect>
  void Order(Call call, Effect effect);

  const TimeUs lease_us_;
  TimeUs now_ = 0;
  Effects effects_;

  bool view_known_ = false;
  ElectionView view_;

  Call call_ = Call::kNone;
  TimeUs ordered_us_ = 0;  // the call

  uint64_t lease_ = 0;  // granted and not known to have ended; 0: none
  TimeUs ttl_us_;
  TimeUs until_us_ = 0;  // the lease's end as this candidate counts it
  bool give_up_lease_ = false;
  Backoff claims_;
  TimeUs claim_at_us_ = 0;    // not earlier
  TimeUs free_since_us_ = 0;  // the view has had no leader since

  bool aside_ = false;
  Backoff asides_;
  TimeUs may_step_aside_at_us_ = 0;  // not earlier

  bool leading_ = false;
  TimeUs led_since_us_ = 0;
  uint64_t generation_ = 0;
  int64_t leader_revision_ = 0;      // of the claim
  int64_t generation_revision_ = 0;  // of the claim or the last raise
  uint64_t stored_generation_ = 0;   // or being stored
  TimeUs renew_at_us_ = 0;
  uint64_t raise_to_ = 0;  // 0: nothing to store
  TimeUs raise_at_us_ = 0;

  bool resigned_ = false;
  bool gave_up_ = true;
};

}  // namespace skein::scheduler
