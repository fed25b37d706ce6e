// StagedWire: the source's side of transfers between a peer and device memory that the inner wire
// cannot reach. The bytes go through page-locked slots of the host: while the inner wire sends one
// slot, the next is filled. Internal to engine/transport; the target's side is DeviceInbox.
//
// A put starts at the inner wire when its copies are done; its slot is free again when the inner
// wire has finished with it. A get arrives in the slot and is done when it was copied to the
// device. Transfers of host memory go straight to the inner wire. Each peer has two slots of its
// own, so a stopped peer takes none from others.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/copy_stream.h"
#include "engine/transport/device/device_regions.h"
#include "engine/transport/device/pinned_slots.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class StagedWire : public Wire {
 public:
  StagedWire(std::unique_ptr<Wire> inner, std::shared_ptr<CopyStream> copies);
  ~StagedWire() override;

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override;
  void Unmap(uint64_t mapping) override;
  absl::StatusOr<uint64_t> Open(const std::string& worker_address) override {
    return inner_->Open(worker_address);
  }
  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override {
    return inner_->Import(endpoint, region);
  }
  void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
             WireTicket* ticket) override;
  void Flush(uint64_t endpoint, WireTicket* ticket) override;
  WireGrants* Grants() override { return inner_->Grants(); }
  // Also true while copies run, because they end sooner than a sleep would.
  bool Progress() override;
  std::optional<int> Arm() override { return inner_->Arm(); }
  absl::Status Health(uint64_t endpoint) override { return inner_->Health(endpoint); }
  std::string TransportName(uint64_t endpoint) override { return inner_->TransportName(endpoint); }
  TransferPath Path(uint64_t endpoint) override {
    return connections_.contains(endpoint) ? TransferPath::kHostStaged : inner_->Path(endpoint);
  }
  std::string WhyNotFaster(uint64_t endpoint) override;
  void Close(uint64_t endpoint) override;

 private:
  enum class Kind { kPut, kGet, kFlush };
  enum class Stage { kWaits, kCopiesOut, kOnWire, kCopiesIn, kDone };
  struct Job {
    Kind kind = Kind::kFlush;
    std::vector<WirePiece> pieces;
    uint64_t bytes = 0;
    WireTicket* ticket = nullptr;  // counts this as one operation
    Stage stage = Stage::kWaits;
    std::byte* slot = nullptr;
    uint64_t mark = 0;  // of the copies under way
    WireTicket inner;
  };
  // One endpoint's.
  struct Connection {
    std::unique_ptr<PinnedSlots> slots;
    std::list<Job> jobs;  // in the order of their calls
  };

  Connection& ConnectionOf(uint64_t endpoint);
  void Add(Connection* connection, Job job);
  bool Advance(uint64_t endpoint, Connection* connection, Job* job, bool puts_wait);
  bool Begin(uint64_t endpoint, Connection* connection, Job* job);
  void StartInner(uint64_t endpoint, Job* job);
  bool LeaveWire(Job* job);
  // Starts the copies between the job's pieces and its slot; false: they failed.
  bool Copy(Job* job);
  // Whether the job's copies are done, or failed.
  bool Copied(Job* job);
  static void Fail(Job* job, absl::Status status);
  static void End(Connection* connection, Job* job);

  std::unique_ptr<Wire> inner_;
  const std::shared_ptr<CopyStream> copies_;
  DeviceRegions device_regions_;
  std::map<uint64_t, Connection> connections_;  // by endpoint
  // Slots of closed endpoints, for new ones. They are never freed, because a medium that did not
  // close a connection in time may still read them.
  std::vector<std::unique_ptr<PinnedSlots>> spare_slots_;
};

}  // namespace skein::engine
