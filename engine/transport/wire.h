// Wire: what WireTransport needs of a medium. Internal to this folder; the callers' interface is
// transport.h. Every method is called under the transport's lock, so a Wire needs none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/transport/description.h"
#include "engine/transport/transport.h"

namespace skein::engine {

// Counts operations under way; the wire writes it, at the latest in Progress or Close.
struct WireTicket {
  uint32_t in_flight = 0;
  uint64_t bytes_in_flight = 0;
  absl::Status error;  // the first one
};

struct WireMapping {
  uint64_t handle = 0;
  std::byte* base = nullptr;
  std::string key;  // for the peers' Import
};

// A run of bytes on both sides.
struct WirePiece {
  std::byte* local = nullptr;
  uint64_t remote = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;  // from Import
};

enum class TransferPath { kDirect, kHostStaged };  // PeerInfo::path

class Wire {
 public:
  virtual ~Wire() = default;

  // Null base: the wire allocates.
  virtual absl::StatusOr<WireMapping> Map(void* base, size_t bytes) = 0;
  virtual void Unmap(uint64_t mapping) = 0;

  virtual absl::StatusOr<uint64_t> Open(const std::string& worker_address) = 0;
  virtual absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) = 0;

  // Done on return, or counted in the ticket until Progress finishes it. Errors go to the ticket.
  // Pieces given together may travel together, which is what makes many small ones fast.
  virtual void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                     WireTicket* ticket) = 0;

  // As Start; ends when all puts started before it at this endpoint are visible to the target.
  virtual void Flush(uint64_t endpoint, WireTicket* ticket) = 0;

  // True if anything moved.
  virtual bool Progress() = 0;

  // Prepares to sleep: a descriptor that becomes readable at the next event (-1: there will be
  // none), or nothing if events already wait, or something that can only be tried again.
  virtual std::optional<int> Arm() = 0;

  // Not OK once the peer was found dead.
  virtual absl::Status Health(uint64_t endpoint) = 0;
  virtual std::string Lanes(uint64_t endpoint) = 0;
  virtual TransferPath Path(uint64_t endpoint) = 0;

  // Breaks off: bounded, and afterwards no ticket counts an operation of this endpoint. Its keys
  // are gone too.
  virtual void Close(uint64_t endpoint) = 0;
};

}  // namespace skein::engine
