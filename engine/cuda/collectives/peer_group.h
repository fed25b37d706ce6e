// What the collectives' kernels (collectives.h) know of a group of GPUs of one node: memory of each
// that all the others reach, and how it is laid out. For the host and for kernels.
//
// A rank's peer-mapped memory: the word that says whether the group is broken; a mailbox for each
// lane and sender (a flag and two signatures); two sets of slots for each sender and lane. Only the
// sender writes its mailbox and its slots. A lane is one block of a kernel at every rank; lanes
// know nothing of one another.
//
// Meeting. A pair of ranks counts the meetings of each of its lanes: the epoch, which each keeps in
// its own memory, so that a launch of a graph goes on where the one before ended. For meeting e a
// sender fills the slot of set e % 2 and releases flag e + 1. It may go on to meeting e + 1, and to
// the other set, before the receiver has read; but to e + 2 only when the receiver's flag e + 2 has
// come, which the receiver raises after it has read the slot of e. So two sets are enough.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::engine {

inline constexpr int kPeerRanksMax = 8;

// The same at all ranks.
struct PeerShape {
  int lanes = 32;                   // blocks of a kernel; all of them fit on a GPU at once
  int slot_bytes = 32 << 10;        // a multiple of 16
  int segment_bytes_min = 4 << 10;  // a multiple of 16: less is not worth a lane of its own
  int threads = 512;                // of a block; at least kPeerRanksMax
};

// In a rank's memory, from one sender. 16 bytes.
struct PeerMailbox {
  uint32_t flag;           // meetings that the sender has come to
  uint32_t signatures[2];  // what it believes the meeting is about, by set
  uint32_t unused;
};

inline constexpr size_t kPeerBrokenBytes = 128;  // the first word; the rest is not used

constexpr size_t PeerMailboxOffset(int lane, int sender) {
  return kPeerBrokenBytes +
         static_cast<size_t>(lane * kPeerRanksMax + sender) * sizeof(PeerMailbox);
}

constexpr size_t PeerSlotOffset(const PeerShape& shape, int ranks, uint32_t set, int sender,
                                int lane) {
  const size_t slot =
      (static_cast<size_t>(set) * static_cast<size_t>(ranks) + static_cast<size_t>(sender)) *
          static_cast<size_t>(shape.lanes) +
      static_cast<size_t>(lane);
  return PeerMailboxOffset(shape.lanes, 0) + slot * static_cast<size_t>(shape.slot_bytes);
}

// Of a rank's peer-mapped memory; zeros at first.
constexpr size_t PeerMemoryBytes(const PeerShape& shape, int ranks) {
  return PeerSlotOffset(shape, ranks, 2, 0, 0);
}

// Of `epochs`.
constexpr size_t PeerEpochsBytes(const PeerShape& shape) {
  return static_cast<size_t>(shape.lanes) * kPeerRanksMax * sizeof(uint32_t);
}

// Why a group broke, as its kernels found it at this rank.
enum class PeerFault : uint32_t {
  kNone = 0,
  kLate,     // `peer` did not come to the meeting in time
  kTold,     // another rank, or the host, said so
  kDiffers,  // `peer` is in another call, or in one of another size
};
struct PeerReport {
  uint32_t fault = 0;  // PeerFault
  int32_t peer = -1;
  int32_t lane = -1;
  uint32_t epoch = 0;
};

struct PeerGroup {
  int ranks = 0;  // 2 … kPeerRanksMax
  int rank = 0;
  PeerShape shape;
  std::byte* memory[kPeerRanksMax] = {};  // each rank's, as this GPU reaches it; aligned to 16
  uint32_t* epochs = nullptr;             // this rank's own, PeerEpochsBytes, zeros at first
  PeerReport* report = nullptr;           // this rank's own
  int64_t wait_ns_max = 0;                // for one meeting
};

// What a pair's message is cut into: the same at both ends, which know the larger of its two sizes.
// Segment s goes over lane s % lanes, in the (s / lanes)-th meeting there. At least one, of no
// bytes.
constexpr int64_t PeerSegmentBytes(const PeerShape& shape, int64_t bytes) {
  const int64_t even = (bytes + shape.lanes - 1) / shape.lanes;
  const int64_t whole = (even + 15) / 16 * 16;
  const int64_t least = whole < shape.segment_bytes_min ? shape.segment_bytes_min : whole;
  return least < shape.slot_bytes ? least : shape.slot_bytes;
}
constexpr int64_t PeerSegments(const PeerShape& shape, int64_t bytes) {
  const int64_t each = PeerSegmentBytes(shape, bytes);
  return bytes <= each ? 1 : (bytes + each - 1) / each;
}

}  // namespace skein::engine
