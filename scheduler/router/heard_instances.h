// HeardInstances: which decode instances a router hears. It tells each orchestrator about its own
// instances, because an orchestrator that cannot reach an instance asks nobody else whether it is
// alive. Part of TokenStreamClient; one thread owns it; no I/O.
//
// A router *hears* an instance while it has requests there and a message came from the instance's
// endpoint within a third of the lease that the instance's orchestrator names in its welcome. So
// when an instance has been silent for half of it, its orchestrator knows whether a router hears
// it. A decode-worker sends an empty message when it has nothing else to send
// (scheduler/worker/token_streams.h), so instances of slow requests are heard, too. An instance
// whose token stream broke is not heard until a message comes on the next one. Silence is measured
// while this process listens (scheduler/base/listening_clock.h): its own pauses are not the silence
// of others.
//
// An instance is known by its process (incarnation), because its orchestrator's successor gives it
// another id. A router that connects to a new orchestrator tells it at once what it hears.
//
// Invariants (CheckInvariants): every place has requests and is found by its endpoint; exactly the
// endpoints that are heard have a time at which their silence ends that; what a cell was told still
// holds unless a change is pending.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/listening_clock.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler {

// A decode instance of a cell.
struct DecodePlace {
  size_t cell = 0;
  Incarnation instance;
  auto operator<=>(const DecodePlace&) const = default;
};

class HeardInstances {
 public:
  static constexpr TimeUs SilenceOf(TimeUs lease_us) { return std::max<TimeUs>(lease_us / 3, 1); }
  static constexpr TimeUs kLeaseUs = 3 * kSecondUs;  // of a cell, before its welcome

  // The cell's orchestrator has named the lease of its instances. Holds from the next message on.
  void SetLease(size_t cell, TimeUs lease_us);

  // A request is attached there, or no longer. A place has one endpoint.
  void Attach(const DecodePlace& place, const std::string& endpoint);
  void Detach(const DecodePlace& place);

  // Something came from the endpoint, or its token stream has ended.
  void Received(const std::string& endpoint, TimeUs now);
  void Broken(const std::string& endpoint);

  // All earlier messages were handled: only this lets silence grow.
  void Tick(TimeUs now);
  TimeUs NextDeadline() const { return listening_.NextTick(silent_at_.Next()); }

  struct Told {
    std::vector<Incarnation> heard;
    std::vector<Incarnation> not_heard;
  };
  // Of one cell: all with requests, or those that changed since it was told last. Both count as
  // told.
  Told TellAll(size_t cell);
  Told TellChanges(size_t cell);

  absl::Status CheckInvariants() const;

 private:
  struct Endpoint {
    bool heard = false;
    TimeUs silent_us = 0;  // when it is not heard any more, by the listening clock
    std::set<DecodePlace> places;
  };
  struct Place {
    std::string endpoint;
    int64_t requests = 0;
  };
  struct Cell {
    TimeUs silence_us = SilenceOf(kLeaseUs);
    std::set<Incarnation> told;  // as heard
    std::set<Incarnation> changed;
  };

  bool IsHeard(const DecodePlace& place) const;
  void SetHeard(Endpoint& endpoint, bool heard);
  TimeUs SilenceOf(const Endpoint& endpoint) const;
  void NoteChange(const DecodePlace& place) { cells_[place.cell].changed.insert(place.instance); }

  ListeningClock listening_{SilenceOf(kLeaseUs)};  // for the shortest silence
  std::map<std::string, Endpoint> endpoints_;      // with requests
  std::map<DecodePlace, Place> places_;
  std::map<size_t, Cell> cells_;
  TimerQueue<std::string> silent_at_;  // by the listening clock
};

}  // namespace skein::scheduler
