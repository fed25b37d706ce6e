// A Transport that breaks on purpose, over any other: for the tests of everything that uses one.
// With a plan of no faults it is transparent (the conformance suite runs it so).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/transport/transport.h"

namespace skein::engine {

struct TransferFault {
  enum Kind {
    kNone,
    kDelay,    // moves, but its completion is held back for `polls` Polls
    kDrop,     // moves nothing (or little); ends UNAVAILABLE
    kPartial,  // moves the first half of the bytes; ends UNAVAILABLE
    kStall,    // moves nothing (or little); ends in its timeout, or CANCELLED
  };
  Kind kind = kNone;
  int polls = 0;
};

class FaultTransport : public Transport {
 public:
  // Asked in every Post that the inner transport accepts, with how many came before. Called under
  // the lock: it must not call the transport.
  using Plan = std::function<TransferFault(uint64_t post, PeerId peer)>;

  FaultTransport(std::unique_ptr<Transport> inner, Plan plan);

  // The death of a peer: its transfers end UNAVAILABLE, Post refuses, until the next Connect that
  // answers this id.
  void KillPeer(PeerId peer);

  absl::StatusOr<Region> Register(void* base, size_t bytes) override;
  absl::Status Unregister(RegionId region) override;
  absl::StatusOr<std::string> Describe(std::span<const RegionId> regions) override;
  absl::StatusOr<Peer> Connect(std::string_view description) override;
  absl::Status Disconnect(PeerId peer) override;
  absl::StatusOr<TransferId> PostUnder(GrantId grant, PeerId peer, TransferOp op,
                                       std::span<const TransferPiece> pieces,
                                       std::chrono::nanoseconds timeout) override;
  void Cancel(TransferId transfer) override;
  size_t Poll(size_t max, std::chrono::nanoseconds wait,
              std::vector<TransferCompletion>* out) override;
  void OpenGrant(GrantId grant) override { inner_->OpenGrant(grant); }
  void CloseGrant(GrantId grant) override { inner_->CloseGrant(grant); }
  std::vector<GrantId> TakeClosed() override;
  void Wake() override;
  absl::StatusOr<PeerInfo> Inspect(PeerId peer) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Record {
    PeerId peer;
    TransferFault fault;
    Clock::time_point deadline;
    bool cancelled = false;
  };
  struct Held {
    TransferCompletion completion;
    int polls = 0;
  };

  bool Release(size_t max, std::vector<TransferCompletion>* out);
  void Receive(TransferCompletion completion);
  bool Waiting();
  bool TakeInnerClosed();

  const std::unique_ptr<Transport> inner_;
  const Plan plan_;
  std::atomic<bool> woken_{false};
  std::mutex mutex_;  // guards all below; never held while the inner transport polls
  uint64_t posts_ = 0;
  std::map<TransferId, Record> records_;  // by the inner transport's id, which is also ours
  std::set<TransferId> checks_;  // posted only to be checked; their ends are nobody's business
  std::map<TransferId, Record> stalled_;
  std::deque<Held> held_;  // in order
  std::vector<GrantId> closed_;
  std::set<PeerId> dead_;
};

}  // namespace skein::engine
