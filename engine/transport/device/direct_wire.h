// DirectWire: transfers to and from the device memory of another process of this node. Neither the
// host's memory nor the other process takes part. Internal to engine/transport.
//
// The key of a region of device memory tells other processes of the node how to open it
// (PeerOpener). A process that opened it copies from and to it by its own device; such a put or get
// is done when the copy is. All other transfers, such as those to a region that cannot be opened
// from here or that lies in host memory, go to the inner wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/copy_stream.h"
#include "engine/device/peer_opener.h"
#include "engine/transport/device/device_regions.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class DirectWire : public Wire {
 public:
  // Worker addresses are as SealAddress makes them.
  DirectWire(std::unique_ptr<Wire> inner, std::shared_ptr<CopyStream> copies,
             std::shared_ptr<PeerOpener> opener)
      : inner_(std::move(inner)), copies_(std::move(copies)), opener_(std::move(opener)) {}
  ~DirectWire() override;

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override;
  void Unmap(uint64_t mapping) override;
  absl::StatusOr<uint64_t> Open(const std::string& worker_address) override;
  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override;
  void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
             WireTicket* ticket) override;
  void Flush(uint64_t endpoint, WireTicket* ticket) override;
  WireGrants* Grants() override { return inner_->Grants(); }
  // Also true while copies run, because they end sooner than a sleep would.
  bool Progress() override;
  std::optional<int> Arm() override { return inner_->Arm(); }
  // A device that failed to copy breaks the peer, too.
  absl::Status Health(uint64_t endpoint) override;
  // Also says why the path is not the direct one.
  std::string TransportName(uint64_t endpoint) override;
  TransferPath Path(uint64_t endpoint) override;
  std::string WhyNotFaster(uint64_t endpoint) override;
  // Waits for the copies that run: afterwards nobody here writes to the peer's memory.
  void Close(uint64_t endpoint) override;

 private:
  // A peer's region; its address is the key.
  struct Remote {
    uint64_t inner = 0;
    uint64_t address = 0;               // in its own process
    std::shared_ptr<std::byte> opened;  // the same place for our device's copies, or null
  };
  // Copies that were queued together, or one flush.
  struct Job {
    uint64_t mark = 0;
    uint64_t bytes = 0;
    WireTicket* ticket = nullptr;  // counts this as one operation
  };
  // One endpoint's.
  struct Connection {
    bool near = false;  // the process is one of this host that we see
    bool own = false;   // it is this one
    std::list<Remote> remotes;
    std::deque<Job> jobs;
    bool direct = false;  // something went this way
    bool inner = false;   // and something the other
    std::string refusal;  // why a region that is shared could not be opened
    absl::Status health;
  };

  std::shared_ptr<std::byte> OpenRegion(Connection* connection, const DescribedRegion& region);
  void StartCopies(Connection* connection, std::span<const CopyPiece> between_devices,
                   std::span<const CopyPiece> with_host, WireTicket* ticket);
  absl::StatusOr<uint64_t> Queue(std::span<const CopyPiece> between_devices,
                                 std::span<const CopyPiece> with_host);
  bool Advance(Connection* connection);
  static void Add(Connection* connection, const Job& job);
  static void EndFirst(Connection* connection, const absl::Status& status);
  static void Fail(Connection* connection, WireTicket* ticket, const absl::Status& status);

  const std::unique_ptr<Wire> inner_;
  const std::shared_ptr<CopyStream> copies_;
  const std::shared_ptr<PeerOpener> opener_;
  DeviceRegions device_regions_;
  std::map<uint64_t, Connection> connections_;  // by endpoint
};

}  // namespace skein::engine
