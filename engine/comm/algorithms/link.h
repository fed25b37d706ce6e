// Link: what a LinkCommunicator needs of the wire: messages between the ranks of one group, in
// order for each pair of ranks. Internal to engine/comm.
//
// Send and Receive only start a message; Wait returns when what is received has arrived and the
// buffers are the caller's again (what is sent may then still be under way). The n-th Send of rank
// a to rank b meets the n-th Receive of b from a, with no bytes, too. All but Abort are called by
// one thread at a time.
//
// A link breaks once and for good: Wait reports why, to all ranks that wait or will.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace skein::engine {

// What both ends must agree on besides the number of bytes.
using Signature = uint64_t;

// For links whose hosts exchange messages of another length in place of the real ones.
constexpr Signature WithSize(Signature signature, size_t bytes) {
  return signature ^ (Signature{bytes} * 0x9e3779b97f4a7c15u);
}

// Where the buffers of a link's communicator live, and what computes on them. What is started runs
// in the order of the link's messages: a Send started later sends the result.
class LinkMemory {
 public:
  virtual ~LinkMemory() = default;

  // This many bytes of slices are summed at a time: one piece is summed while the next is on its
  // way.
  virtual int64_t PieceBytes() const = 0;

  // At least `bytes`, kept until the next call. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::byte*> Scratch(size_t bytes) = 0;

  virtual void Copy(std::byte* to, std::span<const std::byte> from) = 0;

  // Like SumInOrder (reduce.h).
  virtual void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) = 0;
};

class Link {
 public:
  // Leaves the group: a rank that still needs something of this one sees UNAVAILABLE. Bounded.
  virtual ~Link() = default;

  virtual int Rank() const = 0;
  virtual int Size() const = 0;

  virtual void Send(int to, std::span<const std::byte> data, Signature signature) = 0;
  virtual void Receive(int from, std::span<std::byte> data, Signature signature) = 0;

  // OK, or why the link is broken: INTERNAL (sizes or signatures differ), DEADLINE_EXCEEDED (this
  // deadline passed), UNAVAILABLE (another rank's word, or its death). After an error nobody
  // touches the buffers any more.
  virtual absl::Status Wait(CommDeadline deadline) = 0;

  // OK, or why the link is broken.
  virtual absl::Status Health() = 0;

  // Owned by the link.
  virtual LinkMemory* Memory() = 0;

  // As Communicator's; INTERNAL stays INTERNAL, every other code becomes UNAVAILABLE.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace skein::engine
