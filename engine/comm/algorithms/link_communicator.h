// Communicator over a Link: the algorithms. Internal to engine/comm.
//
// Every rank owns a slice of the elements: it receives that slice from all, sums it in the order of
// ranks, and sends the rounded sum to all. That moves the bytes of a ring, (n - 1) / n of the
// buffer out and in for each half, in two steps instead of 2 (n - 1), and needs no partial sums on
// the wire. Short buffers go whole to everybody and each rank sums for itself, in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/communicator.h"

namespace skein::engine {

class LinkCommunicator : public Communicator {
 public:
  explicit LinkCommunicator(std::unique_ptr<Link> link) : link_(std::move(link)) {}

  int Rank() const override { return link_->Rank(); }
  int Size() const override { return link_->Size(); }
  void Tag(uint64_t tag) override { tag_ = tag; }

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override;
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override;
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override;
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override;
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override;
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override;
  void Abort(const absl::Status& reason) override { link_->Abort(reason); }

 private:
  static constexpr uint64_t kTagFactor = 0xd6e8feb86659fd93u;  // odd: other tags, other products

  // OK, or UNAVAILABLE if the link broke before this call.
  absl::Status Enter();
  // As in LinkMemory. Without memory the group breaks, so that no rank waits for this one.
  absl::StatusOr<std::byte*> Scratch(size_t bytes);
  // Of a message of the call that `signature` describes.
  Signature Tagged(Signature signature) const { return signature ^ (tag_ * kTagFactor); }
  int Peer(int distance) const { return (Rank() + distance + Size()) % Size(); }
  absl::Status ReduceWhole(void* data, int64_t count, DType dtype, CommDeadline deadline);
  void CopyUnlessSame(std::byte* to, std::span<const std::byte> from);

  const std::unique_ptr<Link> link_;
  uint64_t tag_ = 0;
};

}  // namespace skein::engine
