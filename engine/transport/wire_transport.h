// WireTransport: the whole of the Transport contract over any Wire: ids, bounds, order, deadlines,
// cancelling, sleeping. Internal to engine/transport; see loopback_transport.h and ucx_transport.h
// for the factories.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/fair_mutex.h"
#include "engine/transport/description.h"
#include "engine/transport/peer_queue.h"
#include "engine/transport/pieces.h"
#include "engine/transport/transport.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class WireTransport : public Transport {
 public:
  WireTransport(TransportKind kind, std::string worker_address, std::unique_ptr<Wire> wire);
  ~WireTransport() override;

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
  void OpenGrant(GrantId grant) override;
  void CloseGrant(GrantId grant) override;
  std::vector<GrantId> TakeClosed() override;
  void Wake() override;
  absl::StatusOr<PeerInfo> Inspect(PeerId peer) override;

 private:
  struct LocalRegion {
    RegionExtent extent;
    WireMapping mapping;
    uint64_t segments_in_use = 0;
  };
  enum class Round { kReturn, kAgain, kSleep };
  struct PollState {
    TransportClock::time_point until;
    int rounds = 0;
    int idle_rounds = 0;
    int wire_fd = -1;
    TransportClock::time_point sleep_until;
  };

  // Grants that were closed since the last round.
  class Closings {
   public:
    void Add(GrantId grant) {
      std::lock_guard lock(mutex_);
      grants_.push_back(grant);
    }
    std::vector<GrantId> Take() {
      std::lock_guard lock(mutex_);
      return std::exchange(grants_, {});
    }
    bool empty() {
      std::lock_guard lock(mutex_);
      return grants_.empty();
    }

   private:
    std::mutex mutex_;
    std::vector<GrantId> grants_;
  };

  Round PollOnce(size_t max, PollState* state, std::vector<TransferCompletion>* out);
  bool Pump();
  void Collect(std::vector<std::unique_ptr<Transfer>> ended);
  Round PrepareSleep(PollState* state);
  void Sleep(const PollState& state);
  PeerQueue* FindPeer(PeerId peer);
  void Signal();

  const TransportKind kind_;
  const uint64_t incarnation_;
  const std::string worker_address_;
  const int wake_fd_;
  const std::unique_ptr<Wire> wire_;
  WireGrants* const grants_;  // the wire's
  std::atomic<bool> woken_{false};
  // Whoever gives Poll something to do looks at this afterwards (Signal); Poll sets it, and then
  // looks once more whether there is something to do.
  std::atomic<bool> sleeping_{false};
  Closings closings_;

  FairMutex mutex_;  // guards wire_, but for Open of its grants, and all below
  uint64_t next_id_ = 1;
  std::map<RegionId, LocalRegion> regions_;
  std::map<std::pair<std::string, uint64_t>, PeerId> peer_ids_;  // by worker address, incarnation
  std::map<PeerId, std::unique_ptr<PeerQueue>> peers_;
  std::map<TransferId, PeerId> transfers_;  // under way
  uint64_t segments_queued_ = 0;
  std::deque<TransferCompletion> completions_;
  std::vector<GrantId> closed_;  // grants, until TakeClosed
};

}  // namespace skein::engine
