// One peer of a WireTransport: its endpoint, its regions and the transfers to it, served in the
// order of their Posts. Not thread-safe; WireTransport's lock covers it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/transport/description.h"
#include "engine/transport/pieces.h"
#include "engine/transport/transport.h"
#include "engine/transport/wire.h"

namespace skein::engine {

using TransportClock = std::chrono::steady_clock;

struct Transfer {
  TransferId id;
  TransferOp op = TransferOp::kPut;
  std::vector<Segment> segments;
  TransportClock::time_point deadline;
  size_t next_segment = 0;   // the first that is not wholly issued
  uint64_t next_offset = 0;  // bytes of it that are
  uint64_t issued_bytes = 0;
  bool flush_started = false;  // puts only
  bool given_up = false;       // `end` is set, nothing more is issued
  absl::Status end;
  WireTicket ticket;
};

class PeerQueue {
 public:
  // `wire` outlives this. The endpoint opens with the first AddRegions.
  PeerQueue(PeerId id, Wire* wire) : id_(id), wire_(wire) {}
  ~PeerQueue();
  PeerQueue(const PeerQueue&) = delete;
  PeerQueue& operator=(const PeerQueue&) = delete;

  // Opens the endpoint if there is none (again after Break) and imports what is new.
  absl::Status AddRegions(const Description& description);

  // So that the permission to put under it is there when the first put is. 0: nothing is asked.
  void AskFor(GrantId grant);

  const RegionExtent* FindRegion(RegionId region) const;
  void Push(std::unique_ptr<Transfer> transfer);
  void Cancel(TransferId transfer);

  // Starts, finishes and expires transfers; moves finished ones to `ended`. Spends at most *budget
  // bytes of new operations. True if anything changed.
  bool Pump(TransportClock::time_point now, uint64_t* budget,
            std::vector<std::unique_ptr<Transfer>>* ended);

  // Ends every transfer with `reason` and closes the endpoint; bounded.
  void Break(const absl::Status& reason);

  bool idle() const { return queue_.empty(); }
  bool broken() const { return !broken_.ok(); }
  bool in_flight() const;
  TransportClock::time_point NextDeadline() const;
  PeerId id() const { return id_; }
  PeerInfo Info(TransportClock::time_point now) const;

 private:
  struct RemoteRegion {
    RegionExtent extent;
    DescribedRegion described;
    uint64_t key = 0;
  };

  bool MayPut(const Transfer& transfer);
  bool ObeyWithdrawals();
  bool Issue(Transfer* transfer, uint64_t* budget);
  void StartNext(Transfer* transfer, uint64_t* budget);
  bool WindowFull() const;
  bool Finished(const Transfer& transfer) const;
  bool ExpireOrBreak(Transfer* transfer, TransportClock::time_point now);
  void Retire(Transfer* transfer);

  const PeerId id_;
  Wire* const wire_;
  bool open_ = false;
  uint64_t endpoint_ = 0;
  std::map<RegionId, RemoteRegion> regions_;
  std::deque<std::unique_ptr<Transfer>> queue_;
  std::vector<WirePiece> batch_;  // StartNext's
  absl::Status broken_;
  PeerInfo info_;
  TransportClock::time_point busy_since_;
};

}  // namespace skein::engine
