// Election: campaigns for the leadership of a cell in a ClusterStore, for this process.
//
// The decisions are scheduler/election's (pure, on the caller's clock); this is its shell: a thread
// that decides and tells, a thread that calls the store, and the store's watch.
//
// Safety. A leadership is an entry with a lease. The leader counts the lease's time from before it
// sent the call that granted or renewed it, and stops a margin (a tenth) earlier. So it knows that
// it no longer leads before the store can let another one win. The clock is the host's boot time,
// which runs while the host sleeps and which nobody sets. A process that stood still finds out at
// its next look: Leads() compares with the clock and asks nobody.
//   A look cannot cover what is already on its way: a message that was sent in time may arrive
//   late. That is why every message carries the generation, and peers refuse a lower one.
//
// Generations. The commit that makes a leader also adds one to the cell's generation, by compare
// and swap, so no two leaderships ever have the same, and it only grows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/store/cluster_store.h"

namespace skein::services {

// The leader as the store has it.
struct CellLeader {
  std::string endpoint;  // HOST:PORT, where it serves workers and routers
  uint64_t incarnation = 0;
  uint64_t generation = 0;  // with which it won; see Election::Raise

  friend bool operator==(const CellLeader&, const CellLeader&) = default;
};

class Election {
 public:
  struct Options {
    std::string cell = "default";  // letters, digits, '-', '_' and '.'; the leadership's name
    std::string endpoint;          // this process's, as its peers reach it; no spaces
    uint64_t incarnation = 0;      // of this process; not 0
    // Time to live of the lease. Without its leader a cell has a new one after about this long; a
    // leader whose store does not answer for nine tenths of it steps down. etcd makes it whole
    // seconds, and at least 1.5 times its own election timeout (2 s as etcd comes).
    int64_t lease_us = 1'000'000;
  };
  // All run on the election's thread, one at a time and in this order for each leadership: led,
  // then lost. They may call Leads, Leadership and Raise, and must not call Resign or destroy the
  // election. While one runs nothing else is told, but leases are renewed and Leads() stays true to
  // the clock.
  struct Hooks {
    // This process leads. `generation` is above that of every earlier leader of the cell.
    std::function<void(uint64_t generation)> led;
    // It no longer does. The election goes on: it campaigns again, for a new generation, unless it
    // resigned. `why`:
    //   OK           it resigned.
    //   CANCELLED    it stepped aside.
    //   ABORTED      the store has ended the lease, or has another leader.
    //   UNAVAILABLE  the store did not answer for the lease's time. Nothing says that another one
    //                leads, and as long as the store is down none can. The owner may go on serving
    //                what it has from memory, because peers that follow a new leader refuse this
    //                one's generation; it ends that when leader_is names another one. Once the
    //                store answers and has no leader, this process is told `led` like any other.
    std::function<void(const absl::Status& why)> lost;
    // Another process leads; nullopt: none other does, as far as the store tells. Told first when
    // the store was read, and then at each change.
    std::function<void(const std::optional<CellLeader>&)> leader_is;
    // The store fails (told once for each run of failures), or answers again (OK).
    std::function<void(const absl::Status&)> store;
  };

  // INVALID_ARGUMENT names the option that cannot be: a cell of other characters, an endpoint that
  // is empty or has a space, no incarnation, a lease below 0.1 s or above 1 minute.
  static absl::Status Check(const Options& options);

  // REQUIRES options that pass Check. `store` outlives the election. Campaigning begins at once.
  // Nobody needs to wait for the store: while it fails, the election tries again, and tells by
  // `store`. A hook may be null.
  Election(ClusterStore* store, Options options, Hooks hooks);
  // Ends without resigning, as a process that dies: a leader's lease runs out by itself, and
  // nothing more is told. Waits for a hook that runs, and for a call to the store (a second or so,
  // if it does not answer).
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // A clean end: gives the leadership up, so that another one leads at once, and campaigns no more.
  // First `lost` is told, and when that hook has returned the store is; so the next leader begins
  // after this one has ended. Waits at most `timeout_us`. UNAVAILABLE, DEADLINE_EXCEEDED: the store
  // could not be told, and the next leader has to wait for the lease's end. OK soon if this process
  // does not lead. Any thread but the election's.
  absl::Status Resign(int64_t timeout_us);

  // This leader hears none of those that it leads: it gives the leadership up, so that another one
  // leads at once, and goes on as a candidate. It claims the leadership again after Heard, or when
  // no other one has led for two leases. `lost` is told first, as by Resign. Ignored if it does not
  // lead, or has stepped aside of late (scheduler/election). Any thread; does not wait.
  void StepAside();
  // This process has heard one of them. Any thread; does not wait, and costs nothing unless this
  // process has stepped aside.
  void Heard();

  // Any thread, cheap (a lock held for moments, and the clock): whether this process leads now. To
  // be asked right before each action that only a leader may take. It may be false before `lost`
  // was told; it is never true before `led` begins.
  bool Leads() const;
  // The generation of the leadership of now, or nullopt.
  std::optional<uint64_t> Leadership() const;
  // Until this process stops to lead, unless it renews its lease before, in seconds; 0: it does not
  // lead. Any thread, cheap.
  double LeaseLeftS() const;

  // A peer has seen a higher generation than this leader's (a store that was lost or replaced): the
  // leader has taken `generation`, and the store is to remember it, so that later leaders are above
  // it. Any thread; does not wait. Ignored unless it leads and `generation` is above the store's.
  // If the leadership ends before it is stored, the next leader finds out from its peers, as this
  // one did.
  void Raise(uint64_t generation);

 private:
  class Shell;
  std::unique_ptr<Shell> shell_;
};

}  // namespace skein::services
