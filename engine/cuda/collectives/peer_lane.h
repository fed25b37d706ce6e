// One lane of a rank: the block that meets the same lane of the other ranks (peer_group.h).
// Included from .cu files only, after simt_peer.h.
#pragma once

#include "engine/cuda/collectives/peer_group.h"
#include "engine/cuda/simt/simt_peer.h"

namespace skein::engine {

// How ranks meet. (Tests have others, with mistakes.)
struct PeerRules {
  static __device__ uint32_t SetOf(uint32_t epoch) { return epoch % 2; }
  static __device__ uint32_t FlagOf(uint32_t epoch) { return epoch + 1; }
  // A peer may be one meeting ahead. Epochs wrap.
  static __device__ bool Reached(uint32_t flag, uint32_t awaited) {
    return static_cast<int32_t>(flag - awaited) >= 0;
  }
  static __device__ void Publish(uint32_t* flag, uint32_t value) { simt::PeerRelease(flag, value); }
  static __device__ uint32_t Look(const uint32_t* flag) { return simt::PeerAcquire(flag); }
};

// Every thread of the block has one, and makes the same calls.
template <int kRanks, class Rules>
class PeerLane {
 public:
  __device__ PeerLane(const PeerGroup& group, int lane) : group_(group), lane_(lane) {}

  // False: the group is broken, and nothing of a peer may be touched.
  __device__ bool Open() {
    if (__syncthreads_or(threadIdx.x == 0 && group_.report->fault != 0)) return false;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) epochs_[p] = group_.epochs[lane_ * kPeerRanksMax + p];
    return true;
  }

  // Where this block stores what `peer` finds in Inbox after the next meeting. PeerStore only.
  __device__ std::byte* Outbox(int peer) const {
    return Slot(peer, Rules::SetOf(EpochOf(peer)), group_.rank);
  }
  // What `peer` stored before the last meeting. PeerLoad only, before the next meeting.
  __device__ const std::byte* Inbox(int peer) const {
    return Slot(group_.rank, Rules::SetOf(EpochOf(peer) - 1), peer);
  }

  // Until every rank of `peers` (bits) has come here, too: then it sees what this block stored for
  // it, and this block what it stored. `told` and `expected` are signatures: what is told to the
  // peer of this thread, and what it should tell (threads below kRanks). False: the group is
  // broken.
  __device__ bool Meet(uint32_t peers, uint32_t told, uint32_t expected) {
    __syncthreads();  // all threads have stored, and read what they got in the last meeting
    bool met = true;
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < kRanks && (peers >> peer & 1u) != 0) met = MeetOne(peer, told, expected);
    if (!__syncthreads_and(met)) return false;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) epochs_[p] += peers >> p & 1u;
    return true;
  }

  // After the last meeting, which went well.
  __device__ void Close() {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < kRanks) group_.epochs[lane_ * kPeerRanksMax + peer] = EpochOf(peer);
  }

 private:
  static constexpr int kLooksAtOnce = 64;

  __device__ uint32_t EpochOf(int peer) const {
    uint32_t epoch = 0;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) epoch = p == peer ? epochs_[p] : epoch;
    return epoch;
  }
  __device__ std::byte* Slot(int at, uint32_t set, int sender) const {
    return group_.memory[at] + PeerSlotOffset(group_.shape, kRanks, set, sender, lane_);
  }
  __device__ PeerMailbox* Mailbox(int at, int sender) const {
    return reinterpret_cast<PeerMailbox*>(group_.memory[at] + PeerMailboxOffset(lane_, sender));
  }
  __device__ uint32_t* BrokenWord(int at) const {
    return reinterpret_cast<uint32_t*>(group_.memory[at]);
  }

  __device__ bool MeetOne(int peer, uint32_t told, uint32_t expected) {
    const uint32_t epoch = EpochOf(peer);
    PeerMailbox* theirs = Mailbox(peer, group_.rank);
    const PeerMailbox* own = Mailbox(group_.rank, peer);
    simt::PeerStore(&theirs->signatures[Rules::SetOf(epoch)], told);
    Rules::Publish(&theirs->flag, Rules::FlagOf(epoch));
    if (!Await(&own->flag, peer, epoch)) return false;
    if (simt::PeerLoad<uint32_t>(&own->signatures[Rules::SetOf(epoch)]) == expected) return true;
    return Break(PeerFault::kDiffers, peer, epoch);
  }

  __device__ bool Await(const uint32_t* flag, int peer, uint32_t epoch) {
    const int64_t begin = simt::NowNs();
    for (;;) {
      for (int look = 0; look < kLooksAtOnce; ++look) {
        if (Rules::Reached(Rules::Look(flag), Rules::FlagOf(epoch))) return true;
      }
      if (simt::PeerLoadRelaxed(BrokenWord(group_.rank)) != 0) {
        // The peer may have come here, and broken the group then.
        if (Rules::Reached(Rules::Look(flag), Rules::FlagOf(epoch))) return true;
        return Break(PeerFault::kTold, peer, epoch);
      }
      if (simt::NowNs() - begin > group_.wait_ns_max) return Break(PeerFault::kLate, peer, epoch);
    }
  }

  // Reports the first fault of this rank and tells all ranks. Always false.
  __device__ bool Break(PeerFault fault, int peer, uint32_t epoch) {
    if (atomicCAS(&group_.report->fault, 0u, static_cast<uint32_t>(fault)) == 0) {
      group_.report->peer = peer;
      group_.report->lane = lane_;
      group_.report->epoch = epoch;
    }
    for (int p = 0; p < kRanks; ++p) simt::PeerStoreRelaxed(BrokenWord(p), 1u);
    return false;
  }

  const PeerGroup& group_;
  const int lane_;
  uint32_t epochs_[kRanks] = {};  // meetings so far, by peer
};

}  // namespace skein::engine
